//! Names of units, currencies and numbers, with their spellings. Tables and look-ups only.

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

/// The one name of a unit.
pub(super) fn named(word: &str) -> Option<&'static str> {
    let is_it = |spelling: &str| {
        if word.len() == 1 { spelling == word } else { spelling.eq_ignore_ascii_case(word) }
    };
    UNITS.iter().find(|names| names.iter().any(|name| is_it(name))).map(|names| names[0])
}

/// What a shorthand stands for.
pub(super) fn compound(word: &str) -> Option<&'static [(&'static str, i32)]> {
    COMPOUNDS.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, parts)| *parts)
}

/// What a number word multiplies by.
pub(super) fn scale(word: &str) -> Option<u64> {
    let word = word.strip_suffix('s').filter(|stem| stem.len() > 4).unwrap_or(word);
    SCALES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word)).map(|(_, factor)| *factor)
}

/// `square`, `cubic`: the power of the unit that follows.
pub(super) fn power_before(word: &str) -> Option<i32> {
    match word.to_ascii_lowercase().as_str() {
        "square" | "sq" => Some(2),
        "cubic" | "cu" => Some(3),
        _ => None,
    }
}

/// `squared`, `^2`, `²`: the power of the unit before.
pub(super) fn power_after(word: &str) -> Option<i32> {
    match word {
        "^2" | "²" | "squared" => Some(2),
        "^3" | "³" | "cubed" => Some(3),
        _ => None,
    }
}

/// Whether a word may follow a number as part of its measure.
pub(super) fn is_known(word: &str) -> bool {
    named(word).is_some()
        || compound(word).is_some()
        || scale(word).is_some()
        || power_before(word).is_some()
        || word.eq_ignore_ascii_case("per")
        || NOUNS.iter().any(|noun| noun.eq_ignore_ascii_case(word))
}
