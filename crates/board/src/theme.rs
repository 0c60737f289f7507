//! Colours: one palette, told apart also by colour-blind readers and in grey print by markers.
//!
//! The run colours follow Okabe and Ito (2008); the dark scheme has lighter ones of the same hues.
//! There are seven colours and eight markers, so that 56 runs differ in one or the other.
//!
//! A page switches schemes while it is open, so there the SVG names CSS variables; a file of its
//! own has the light colours written in, because few SVG readers know variables.

use std::fmt::Write as _;

use crate::chart::Tone;

/// Light and dark form of each run colour.
const RUNS: [(&str, &str); 7] = [
    ("#0072b2", "#58aee8"),
    ("#d55e00", "#f58e4e"),
    ("#009e73", "#3cc79e"),
    ("#b8578f", "#e59fc8"),
    ("#e69f00", "#f2be4a"),
    ("#56b4e9", "#a3d8f7"),
    ("#4d4d4d", "#c9c9c9"),
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
    const RGB: [(u8, u8, u8); 7] = [
        (45, 140, 220),
        (226, 107, 30),
        (0, 168, 120),
        (200, 105, 160),
        (214, 150, 10),
        (86, 180, 233),
        (140, 140, 140),
    ];
    match tone {
        Tone::Run(index) => Some(RGB[index % RGB.len()]),
        Tone::Neutral => None,
    }
}
