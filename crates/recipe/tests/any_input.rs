//! Whatever is written into a recipe, the answer is a recipe that survives being written, or an
//! error with a hint. Never a panic.

use proptest::prelude::*;
use scalerl_recipe::{Override, Recipe, Source, reference_page};

/// Every dotted key of the schema, as the reference page names them.
fn keys() -> Vec<String> {
    let page = reference_page();
    let named = page.split("**`").skip(1).filter_map(|rest| rest.split_once("`**"));
    named.map(|(key, _)| key.to_string()).filter(|key| !key.contains('[')).collect()
}

fn values() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|number| number.to_string()),
        (0..20_000_u32).prop_map(|number| number.to_string()),
        any::<f64>().prop_map(|number| number.to_string()),
        (0.0..1.0).prop_map(|number: f64| number.to_string()),
        any::<bool>().prop_map(|value| value.to_string()),
        any::<String>(),
        any::<String>().prop_map(|text| format!("{text:?}")),
        prop::sample::select(vec![
            "none",
            "unset",
            "group",
            "token",
            "clip",
            "k3",
            "[]",
            "{}",
            "[1, 2]",
            "{ type = 1 }",
            "{ type = \"clip\", low = 0.1 }",
            "\"line\\nline {prompt}\"",
            "1979-05-27",
            "nan",
        ])
        .prop_map(Into::into),
    ]
}

fn judge(sources: &[Source], overrides: &[Override]) -> Result<(), TestCaseError> {
    match Recipe::load(sources, overrides) {
        Ok(resolved) => {
            let text = resolved.to_toml();
            let source = Source::Text { name: "written".into(), text: text.clone() };
            let again = Recipe::load(&[source], &[]);
            let again = again.map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
            prop_assert_eq!(&*again, &*resolved);
        }
        Err(error) => {
            prop_assert!(!error.to_string().is_empty() && !error.hint().is_empty());
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn any_value_of_any_key_is_taken_or_refused(
        settings in prop::collection::vec((prop::sample::select(keys()), values()), 1..4),
        base in prop::sample::select(vec!["scalerl", "gspo", "leave-one-out/length-penalty"]),
    ) {
        let overrides: Result<Vec<_>, _> =
            settings.iter().map(|(key, value)| Override::parse(&format!("{key}={value}"))).collect();
        if let Ok(overrides) = overrides {
            judge(&[Source::named(base)], &overrides)?;
        }
    }

    #[test]
    fn any_text_is_a_recipe_or_an_error(text in any::<String>()) {
        judge(&[Source::Text { name: "text".into(), text }], &[])?;
    }

    #[test]
    fn any_override_is_one_or_an_error(text in any::<String>()) {
        if let Ok(change) = Override::parse(&text) {
            judge(&[], &[change])?;
        }
    }

    #[test]
    fn a_shipped_recipe_with_a_piece_cut_out_is_a_recipe_or_an_error(
        start in 0_usize..3000, length in 1_usize..40,
    ) {
        let mut text: Vec<char> = scalerl_recipe::shipped::RECIPES[0].text.chars().collect();
        let start = start.min(text.len());
        text.drain(start..(start + length).min(text.len()));
        judge(&[Source::Text { name: "cut".into(), text: text.into_iter().collect() }], &[])?;
    }
}
