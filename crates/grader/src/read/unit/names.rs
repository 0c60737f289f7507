//! Names of units, currencies and numbers, with their spellings. Tables and look-ups only.

use std::collections::HashMap;
use std::sync::LazyLock;

/// The name of a unit that says only how many dimensions there are.
pub(super) const ANY: &str = "unit";

/// Units with their spellings; the first is the name. Single letters only in the case given.
const UNITS: &[&[&str]] = &[
    &["mm", "millimeter", "millimeters", "millimetre", "millimetres"],
    &["cm", "centimeter", "centimeters", "centimetre", "centimetres"],
    &["dm", "decimeter", "decimeters"],
    &["m", "meter", "meters", "metre", "metres"],
    &["km", "kilometer", "kilometers", "kilometre", "kilometres"],
    &["inch", "inches", "in"],
    &["foot", "feet", "ft"],
    &["yard", "yards", "yd"],
    &["mile", "miles", "mi"],
    &["g", "gram", "grams"],
    &["kg", "kilogram", "kilograms"],
    &["mg", "milligram", "milligrams"],
    &["pound", "pounds", "lb", "lbs"],
    &["oz", "ounce", "ounces"],
    &["ton", "tons", "tonne", "tonnes"],
    &["l", "L", "liter", "liters", "litre", "litres"],
    &["ml", "milliliter", "milliliters", "millilitre", "millilitres"],
    &["gallon", "gallons", "gal"],
    &["s", "second", "seconds", "sec", "secs"],
    &["min", "minute", "minutes", "mins"],
    &["h", "hour", "hours", "hr", "hrs"],
    &["day", "days"],
    &["week", "weeks"],
    &["month", "months"],
    &["year", "years"],
    &["am"],
    &["pm"],
    &["dollar", "dollars", "usd"],
    &["cent", "cents"],
    &["euro", "euros", "eur"],
    &["rupee", "rupees", "rs"],
    &["yen"],
    &["degree", "degrees", "deg"],
    &["radian", "radians", "rad"],
    &["acre", "acres"],
    &["hectare", "hectares"],
    &["N", "newton", "newtons"],
    &["J", "joule", "joules"],
    &["W", "watt", "watts"],
    &["V", "volt", "volts"],
    &["A", "ampere", "amperes"],
    &["C"],
    &["F"],
    &["K", "kelvin"],
    &["ohm", "ohms"],
    &["Hz", "hertz"],
    &["kWh"],
    &["kW", "kilowatt", "kilowatts"],
    &["cal", "calorie", "calories"],
    &["kcal", "kilocalorie", "kilocalories"],
    &["KB", "kilobyte", "kilobytes"],
    &["MB", "megabyte", "megabytes"],
    &["GB", "gigabyte", "gigabytes"],
    &["TB", "terabyte", "terabytes"],
    &[ANY, "units"],
];

/// Units that are shorthand for others.
const COMPOUNDS: &[(&str, &[(&str, i32)])] = &[
    ("mph", &[("h", -1), ("mile", 1)]),
    ("kmh", &[("h", -1), ("km", 1)]),
    ("kmph", &[("h", -1), ("km", 1)]),
    ("cc", &[("cm", 3)]),
];

/// Words that may follow a number in prose and measure nothing.
const NOUNS: &[&str] = &[
    "way", "ways", "point", "points", "people", "student", "students", "apple", "apples", "piece",
    "pieces", "time", "times", "digit", "digits", "number", "numbers",
];

const SCALES: &[(&str, u64)] = &[
    ("dozen", 12),
    ("hundred", 100),
    ("thousand", 1_000),
    ("million", 1_000_000),
    ("billion", 1_000_000_000),
    ("trillion", 1_000_000_000_000),
];

/// What a word after a number says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// A unit by its one name.
    Unit(&'static str),
    /// Shorthand for several.
    Compound(&'static [(&'static str, i32)]),
    /// A number word.
    Scale(u64),
    /// `square`, `cubic`: the power of the unit that follows.
    PowerBefore(i32),
    /// `squared`, `^2`: the power of the unit before.
    PowerAfter(i32),
    Per,
    /// What is counted.
    Noun,
}

const OTHERS: &[(&str, Word)] = &[
    ("square", Word::PowerBefore(2)),
    ("sq", Word::PowerBefore(2)),
    ("cubic", Word::PowerBefore(3)),
    ("cu", Word::PowerBefore(3)),
    ("squared", Word::PowerAfter(2)),
    ("^2", Word::PowerAfter(2)),
    ("²", Word::PowerAfter(2)),
    ("cubed", Word::PowerAfter(3)),
    ("^3", Word::PowerAfter(3)),
    ("³", Word::PowerAfter(3)),
    ("per", Word::Per),
];

/// Every spelling in lower case, save single letters.
static WORDS: LazyLock<HashMap<String, Word>> = LazyLock::new(|| {
    let mut words = HashMap::new();
    let mut add = |spelling: &str, word: Word| {
        let is_letter = spelling.len() == 1;
        words.insert(if is_letter { spelling.to_owned() } else { spelling.to_lowercase() }, word);
    };
    for spellings in UNITS {
        for spelling in *spellings {
            add(spelling, Word::Unit(spellings[0]));
        }
    }
    for (name, parts) in COMPOUNDS {
        add(name, Word::Compound(parts));
    }
    for (name, factor) in SCALES {
        add(name, Word::Scale(*factor));
        add(&format!("{name}s"), Word::Scale(*factor));
    }
    for noun in NOUNS {
        add(noun, Word::Noun);
    }
    for (name, word) in OTHERS {
        add(name, *word);
    }
    words
});

/// Longest word that is looked up.
const LONGEST: usize = 14;

/// What a word says, where it is known.
pub(super) fn known(word: &str) -> Option<Word> {
    match word.len() {
        1 => WORDS.get(word).copied(),
        2..=LONGEST => WORDS.get(word.to_lowercase().as_str()).copied(),
        _ => None,
    }
}
