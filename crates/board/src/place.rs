//! Finds room for labels inside a plot.
//!
//! Each label brings several places it could stand; the one that covers least wins. Leaving the
//! plot or covering another label costs far more than covering a piece of curve. Greedy, in the
//! order of the calls: figures here have a handful of labels.

/// A rectangle in pixels, y growing downwards.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Rect {
    pub(crate) left: f64,
    pub(crate) top: f64,
    pub(crate) right: f64,
    pub(crate) bottom: f64,
}

impl Rect {
    pub(crate) fn width(&self) -> f64 {
        self.right - self.left
    }

    pub(crate) fn height(&self) -> f64 {
        self.bottom - self.top
    }

    pub(crate) fn holds(&self, x: f64, y: f64) -> bool {
        (self.left..=self.right).contains(&x) && (self.top..=self.bottom).contains(&y)
    }

    /// The same rectangle, moved sideways until it is inside another, where it is not too wide.
    pub(crate) fn pushed_into(self, other: &Self) -> Self {
        let left = self.left.min(other.right - self.width()).max(other.left);
        Self { left, right: left + self.width(), ..self }
    }

    fn overlaps(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    fn inside(&self, other: &Self) -> bool {
        other.holds(self.left, self.top) && other.holds(self.right, self.bottom)
    }
}

/// What is already drawn, and what covering it costs.
#[derive(Debug)]
pub(crate) struct Crowd {
    plot: Rect,
    spots: Vec<(f64, f64, f64)>,
    labels: Vec<Rect>,
}

const OUTSIDE: f64 = 1000.0;
const ON_A_LABEL: f64 = 200.0;
/// Distance between the spots that stand for a line.
const SPOT_STEP: f64 = 5.0;

impl Crowd {
    pub(crate) fn new(plot: Rect) -> Self {
        Self { plot, spots: Vec::new(), labels: Vec::new() }
    }

    pub(crate) fn add_spot(&mut self, x: f64, y: f64, cost: f64) {
        self.spots.push((x, y, cost));
    }

    pub(crate) fn add_segment(&mut self, from: (f64, f64), to: (f64, f64), cost: f64) {
        let length = f64::hypot(to.0 - from.0, to.1 - from.1);
        // A curve may run far out of the plot; spots there cost nothing but time.
        let count = ((length / SPOT_STEP) as usize).clamp(1, 400);
        for index in 0..=count {
            let share = index as f64 / count as f64;
            let x = from.0 + (to.0 - from.0) * share;
            let y = from.1 + (to.1 - from.1) * share;
            self.add_spot(x, y, cost);
        }
    }

    /// Chooses the best of some places and keeps it free from later labels.
    pub(crate) fn place(&mut self, places: &[Rect]) -> Option<Rect> {
        let cost = |place: &Rect| -> f64 {
            let outside = if place.inside(&self.plot) { 0.0 } else { OUTSIDE };
            let labels = self.labels.iter().filter(|label| label.overlaps(place)).count();
            let spots = self.spots.iter().filter(|spot| place.holds(spot.0, spot.1));
            outside + ON_A_LABEL * labels as f64 + spots.map(|spot| spot.2).sum::<f64>()
        };
        let best = places.iter().copied().min_by(|a, b| cost(a).total_cmp(&cost(b)))?;
        self.labels.push(best);
        Some(best)
    }
}

/// Spreads boxes of the given heights along a line so that none overlap, each as near as possible
/// to its wish (the middle of the box), all inside `top..bottom` where there is room. Returns the
/// middles, in the order given.
pub(crate) fn spread(wishes: &[(f64, f64)], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..wishes.len()).collect();
    order.sort_by(|a, b| wishes[*a].0.total_cmp(&wishes[*b].0));
    let mut middles = vec![0.0; wishes.len()];
    let mut edge = top;
    for index in &order {
        let (wish, height) = wishes[*index];
        middles[*index] = wish.max(edge + height / 2.0);
        edge = middles[*index] + height / 2.0;
    }
    let mut edge = bottom;
    for index in order.iter().rev() {
        let height = wishes[*index].1;
        middles[*index] = middles[*index].min(edge - height / 2.0);
        edge = middles[*index] - height / 2.0;
    }
    middles
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_avoids_the_curve_and_the_label_before_it() {
        let plot = Rect { left: 0.0, top: 0.0, right: 100.0, bottom: 100.0 };
        let place = |top: f64| Rect { left: 10.0, top, right: 40.0, bottom: top + 10.0 };
        let mut crowd = Crowd::new(plot);
        crowd.add_segment((0.0, 25.0), (100.0, 25.0), 2.0);
        let places = [place(20.0), place(50.0), place(80.0), place(95.0)];
        assert_eq!(crowd.place(&places), Some(places[1]));
        assert_eq!(crowd.place(&places), Some(places[2]));
    }

    #[test]
    fn spread_boxes_keep_their_order_and_do_not_overlap() {
        let middles = spread(&[(50.0, 14.0), (52.0, 14.0), (49.0, 14.0), (98.0, 14.0)], 0.0, 100.0);
        assert!(middles[2] < middles[0] && middles[0] < middles[1] && middles[1] < middles[3]);
        let mut sorted = middles.clone();
        sorted.sort_by(f64::total_cmp);
        assert!(sorted.windows(2).all(|pair| pair[1] - pair[0] > 13.9), "{sorted:?}");
        assert!(sorted[3] <= 93.1);
    }
}
