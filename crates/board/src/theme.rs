//! Colours: one palette, told apart also by colour-blind readers and in grey print by markers.
//!
//! The first seven run colours follow Okabe and Ito (2008), the others lie between them; the dark
//! scheme has lighter ones of the same hues. There are thirteen colours and eight markers, so that
//! 104 runs differ in one or the other.
//!
//! A page switches schemes while it is open, so there the SVG names CSS variables; a file of its
//! own has the light colours written in, because few SVG readers know variables.

use std::fmt::Write as _;

use crate::chart::Tone;

/// Light and dark form of each run colour.
const RUNS: [(&str, &str); 13] = [
    ("#0072b2", "#58aee8"),
    ("#d55e00", "#f58e4e"),
    ("#009e73", "#3cc79e"),
    ("#b8578f", "#e59fc8"),
    ("#e69f00", "#f2be4a"),
    ("#56b4e9", "#a3d8f7"),
    ("#4d4d4d", "#c9c9c9"),
    ("#332288", "#8277e0"),
    ("#b3123a", "#ff5f77"),
    ("#7d7d10", "#b9bd2e"),
    ("#7a4a2b", "#b07a55"),
    ("#12561f", "#5f9a63"),
    ("#a06cd5", "#c19cff"),
];
/// Name, light and dark form of everything else.
const PARTS: [(&str, &str, &str); 6] = [
    ("ink", "#1b1f24", "#e8eaed"),
    ("muted", "#5b6570", "#a3acb5"),
    ("grid", "#e6e9ec", "#2b3138"),
    ("axis", "#9aa3ab", "#5d6771"),
    ("paper", "#ffffff", "#14181c"),
    ("shade", "#f4f6f8", "#1d2329"),
];

/// Where a drawing will be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Theme {
    /// A file of its own: light colours, white ground.
    Print,
    /// The same as pixels: letters come as outlines.
    Picture,
    /// Inside a page that defines the variables of [`variables`].
    Page,
}

impl Theme {
    /// A colour by its name in the palette, ready for an attribute.
    pub(crate) fn part(self, name: &str) -> String {
        match self {
            Self::Page => format!("var(--{name})"),
            Self::Print | Self::Picture => {
                let found = PARTS.iter().find(|part| part.0 == name);
                found.map_or("#000000", |part| part.1).to_owned()
            }
        }
    }

    /// The colour of a run.
    pub(crate) fn tone(self, tone: Tone) -> String {
        match (tone, self) {
            (Tone::Neutral, _) => self.part("muted"),
            (Tone::Run(index), Self::Print | Self::Picture) => {
                RUNS[index % RUNS.len()].0.to_owned()
            }
            (Tone::Run(index), Self::Page) => format!("var(--run-{})", index % RUNS.len()),
        }
    }
}

/// The CSS variables of the light and of the dark scheme.
pub(crate) fn variables() -> (String, String) {
    let (mut light, mut dark) = (String::new(), String::new());
    for (name, day, night) in PARTS {
        let _ = write!(light, "--{name}:{day};");
        let _ = write!(dark, "--{name}:{night};");
    }
    for (index, (day, night)) in RUNS.iter().enumerate() {
        let _ = write!(light, "--run-{index}:{day};");
        let _ = write!(dark, "--run-{index}:{night};");
    }
    (light, dark)
}

/// The colour of a run for a terminal, as red, green and blue: bright enough on dark grounds, dark
/// enough on light ones.
pub(crate) fn terminal_rgb(tone: Tone) -> Option<(u8, u8, u8)> {
    const RGB: [(u8, u8, u8); 13] = [
        (45, 140, 220),
        (226, 107, 30),
        (0, 168, 120),
        (200, 105, 160),
        (214, 150, 10),
        (86, 180, 233),
        (140, 140, 140),
        (120, 105, 215),
        (225, 60, 95),
        (150, 150, 40),
        (160, 105, 70),
        (70, 140, 80),
        (165, 120, 225),
    ];
    match tone {
        Tone::Run(index) => Some(RGB[index % RGB.len()]),
        Tone::Neutral => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::marker::SHAPES;

    /// In OKLab (Ottosson, 2020) two colours side by side are told apart from about 0.02 on; small dots
    /// far from each other need several times that.
    const APART: f64 = 0.07;

    fn oklab(hex: &str) -> [f64; 3] {
        let part = |at: usize| f64::from(u8::from_str_radix(&hex[at..at + 2], 16).unwrap()) / 255.0;
        let linear =
            |c: f64| if c <= 0.04045 { c / 12.92 } else { ((c + 0.055) / 1.055).powf(2.4) };
        let [r, g, b] = [1, 3, 5].map(|at| linear(part(at)));
        let mix = |row: [f64; 3]| row[0] * r + row[1] * g + row[2] * b;
        let l = mix([0.412_221_470_8, 0.536_332_536_3, 0.051_445_992_9]).cbrt();
        let m = mix([0.211_903_498_2, 0.680_699_545_1, 0.107_396_956_6]).cbrt();
        let s = mix([0.088_302_461_9, 0.281_718_837_6, 0.629_978_700_5]).cbrt();
        [
            0.210_454_255_3 * l + 0.793_617_785_0 * m - 0.004_072_046_8 * s,
            1.977_998_495_1 * l - 2.428_592_205_0 * m + 0.450_593_709_9 * s,
            0.025_904_037_1 * l + 0.782_771_766_2 * m - 0.808_675_766_0 * s,
        ]
    }

    #[test]
    fn runs_have_colours_that_can_be_told_apart_in_both_schemes() {
        assert!(RUNS.len() >= 12, "studies compare a dozen variants");
        assert_ne!(RUNS.len() % SHAPES, 0, "colours and markers must not repeat together");
        for (index, one) in RUNS.iter().enumerate() {
            for other in &RUNS[..index] {
                for (a, b) in [(one.0, other.0), (one.1, other.1)] {
                    let squares =
                        oklab(a).iter().zip(oklab(b)).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
                    assert!(squares.sqrt() >= APART, "{a} and {b}: {}", squares.sqrt());
                }
            }
        }
    }
}
