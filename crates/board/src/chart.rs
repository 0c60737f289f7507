//! One description of a figure, as plain data: what is drawn, not how.
//!
//! A [`Figure`] has two axes and a list of [`Layer`]s, drawn in order. The renderers
//! ([`crate::svg`], [`crate::png`], [`crate::terminal`]) all read the same description, so what a
//! user sees in the terminal, in a paper and in a report says the same thing.
//!
//! Rules that hold for every layer: a NaN or infinite coordinate is skipped (in a line it makes a
//! gap); what lies outside an axis range is not drawn; a text left empty is not drawn. Layers with
//! the same `legend` text share one entry, so a run's points, line and band appear as one.
//!
//! A compute of exactly zero has no place on a log axis, yet "before training" is often the most
//! telling point: the axis then gets a slot of its own for 0, left of a break.
//!
//! Not here: how a fit becomes a figure (`plots.rs`), colours (`theme.rs`).

/// A figure, ready for any renderer.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Figure {
    /// Bold line at the top; wraps.
    pub title: String,
    /// Smaller text below it; wraps.
    pub subtitle: String,
    /// Horizontal axis.
    pub x: Axis,
    /// Vertical axis.
    pub y: Axis,
    /// What is drawn, first layer at the back.
    pub layers: Vec<Layer>,
}

/// How values are spread along an axis.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Scale {
    /// Equal differences, equal distances.
    #[default]
    Linear,
    /// Equal ratios, equal distances; values of zero or less have no place.
    Log,
}

/// One axis.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Axis {
    /// Name and unit.
    pub label: String,
    /// Linear or logarithmic.
    pub scale: Scale,
    /// Low and high end; `None` takes what the layers need.
    pub range: Option<(f64, f64)>,
}

impl Axis {
    /// A linear axis that takes the range its layers need.
    pub fn linear(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Linear, range: None }
    }

    /// A logarithmic axis that takes the range its layers need.
    pub fn log(label: impl Into<String>) -> Self {
        Self { label: label.into(), scale: Scale::Log, range: None }
    }

    /// The same axis with fixed ends.
    #[must_use]
    pub fn with_range(self, low: f64, high: f64) -> Self {
        Self { range: Some((low, high)), ..self }
    }
}

/// Whose colour a layer has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tone {
    /// The n-th run: a colour and a marker of its own, the same in every figure.
    Run(usize),
    /// Belongs to no run.
    #[default]
    Neutral,
}

/// One thing drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Layer {
    /// Measurements.
    Points(Points),
    /// A curve or straight line.
    Line(Line),
    /// The space between two curves.
    Band(Band),
    /// A horizontal rule: a ceiling with its interval.
    Level(Level),
    /// A vertical rule: a midpoint, the end of the fitted window.
    Rule(Rule),
    /// Forecasts with their intervals.
    Marks(Marks),
}

/// What a point was to the fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Role {
    /// The fit used it: a filled marker.
    #[default]
    Used,
    /// Before the warm-up cut or otherwise left out: a small, faint, hollow marker.
    LeftOut,
    /// Measured beyond the fitted window, a test of the forecast: a hollow marker.
    HeldOut,
    /// Invisible, never in the legend; only its hover text shows. Used to read values off a curve.
    Probe,
}

/// Measurements of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Points {
    /// Whose they are.
    pub tone: Tone,
    /// What they were to the fit.
    pub role: Role,
    /// Legend entry.
    pub legend: String,
    /// Where they lie.
    pub dots: Vec<Dot>,
}

/// One measurement.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Dot {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// Shown when pointed at; line breaks are kept.
    pub hover: String,
}

/// How a line is drawn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Stroke {
    /// Unbroken.
    #[default]
    Solid,
    /// Dashes: where a curve is a forecast.
    Dashed,
    /// Dots: references such as the diagonal.
    Dotted,
}

/// A curve through points.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Line {
    /// Whose it is.
    pub tone: Tone,
    /// How it is drawn.
    pub stroke: Stroke,
    /// Legend entry.
    pub legend: String,
    /// x and y.
    pub points: Vec<(f64, f64)>,
}

/// The space between two curves.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Band {
    /// Whose it is.
    pub tone: Tone,
    /// Legend entry.
    pub legend: String,
    /// x, low and high; an infinite end reaches to the edge of the figure.
    pub points: Vec<(f64, f64, f64)>,
}

/// A horizontal rule with its interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Level {
    /// Whose it is.
    pub tone: Tone,
    /// Where the rule lies; `None` draws the interval alone (a ceiling that is not bounded).
    pub value: Option<f64>,
    /// A faint band; an infinite end reaches to the edge of the figure.
    pub interval: Option<(f64, f64)>,
    /// Beside the rule in the right margin, or in the legend where that would be too narrow.
    /// A line break starts a second line.
    pub label: String,
    /// The legend entry it belongs to, if any: a label that goes into the legend is added there.
    pub legend: String,
}

/// A vertical rule.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Rule {
    /// Whose it is.
    pub tone: Tone,
    /// Where it stands. It never widens the axis: outside the range it is not drawn.
    pub x: f64,
    /// Written beside it.
    pub label: String,
}

/// Forecasts of one kind.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Marks {
    /// Whose they are.
    pub tone: Tone,
    /// Legend entry.
    pub legend: String,
    /// Where they lie.
    pub marks: Vec<Mark>,
}

/// One forecast with its interval.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Mark {
    /// Horizontal coordinate.
    pub x: f64,
    /// Vertical coordinate.
    pub y: f64,
    /// Lower end of the error bar; NaN or infinite draws none.
    pub low: f64,
    /// Upper end of the error bar.
    pub high: f64,
    /// Written beside it.
    pub label: String,
    /// Shown when pointed at.
    pub hover: String,
}

impl Mark {
    /// The two ends of the error bar, where there is one.
    pub(crate) fn bar(&self) -> Option<(f64, f64)> {
        (self.low.is_finite() && self.high.is_finite()).then_some((self.low, self.high))
    }
}
