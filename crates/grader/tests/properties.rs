//! Laws of the grader, for any numbers; those of `evaluated` are in `evaluated.rs`.

use proptest::prelude::*;
use scalerl_grader::{Grader, Verdict};

fn compare(gold: &str, pred: &str) -> Verdict {
    Grader::default().grade(gold, pred)
}

proptest! {
    #[test]
    fn equal_fractions_are_equal_and_others_are_not(
        a in -10_000_i64..10_000, b in 1_i64..10_000, k in 1_i64..100, d in 1_i64..50,
    ) {
        let gold = format!("\\frac{{{a}}}{{{b}}}");
        let (multiple, other) = (format!("{}/{}", a * k, b * k), format!("{}/{}", a + d, b));
        prop_assert_eq!(compare(&gold, &multiple), Verdict::Equal);
        prop_assert_eq!(compare(&gold, &other), Verdict::Different);
    }

    #[test]
    fn products_of_linear_factors_equal_their_expansion(
        a in -50_i64..50, b in -50_i64..50, c in 1_i64..9,
    ) {
        let gold = format!("$(x-({a}))(x-({b}))$");
        let expanded = format!("$x^2+({})x+({})$", -(a + b), a * b);
        let wrong = format!("$x^2+({})x+({})$", -(a + b), a * b + c);
        prop_assert_eq!(compare(&gold, &expanded), Verdict::Equal);
        prop_assert_eq!(compare(&gold, &wrong), Verdict::Different);
    }

    #[test]
    fn roots_are_taken_out_of_squares(a in 1_i64..200, b in 2_i64..200, c in 1_i64..5) {
        let gold = format!("$\\sqrt{{{}}}$", a * a * b);
        prop_assert_eq!(compare(&gold, &format!("${a}\\sqrt{{{b}}}$")), Verdict::Equal);
        prop_assert_eq!(compare(&gold, &format!("${a}\\sqrt{{{}}}$", b + c)), Verdict::Different);
    }

    #[test]
    fn the_order_of_a_set_is_free_and_of_a_tuple_is_not(mut numbers in prop::collection::vec(-99_i64..99, 2..6)) {
        let join = |numbers: &[i64]| numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(", ");
        let straight = join(&numbers);
        numbers.reverse();
        let reversed = join(&numbers);
        let set = compare(&format!("$\\{{{straight}\\}}$"), &format!("$\\{{{reversed}\\}}$"));
        prop_assert_eq!(set, Verdict::Equal);
        let tuple = compare(&format!("$({straight})$"), &format!("$({reversed})$"));
        prop_assert_eq!(tuple == Verdict::Equal, straight == reversed);
    }

    #[test]
    fn an_equation_may_be_scaled_and_turned_but_not_changed(
        a in 1_i64..30, b in 1_i64..30, c in -30_i64..30, k in 2_i64..9,
    ) {
        let gold = format!("${a}x+{b}y=({c})$");
        let scaled = format!("$({})={}y+{}x$", k * c, k * b, k * a);
        let changed = format!("${a}x+{b}y=({})$", c + 1);
        prop_assert_eq!(compare(&gold, &scaled), Verdict::Equal);
        prop_assert_eq!(compare(&gold, &changed), Verdict::Different);
    }

    #[test]
    fn an_inequality_is_its_interval(a in -50_i64..50, width in 1_i64..50) {
        let (low, high) = (a, a + width);
        let gold = format!("${low} \\le x < {high}$");
        prop_assert_eq!(compare(&gold, &format!("$[{low}, {high})$")), Verdict::Equal);
        prop_assert_eq!(compare(&gold, &format!("$[{low}, {high}]$")), Verdict::Different);
        prop_assert_eq!(compare(&gold, &format!("$[{low}, {})$", high + 1)), Verdict::Different);
    }

    #[test]
    fn any_text_is_judged_without_a_panic(gold in ".{0,60}", pred in "[ -~]{0,200}") {
        compare(&gold, &pred);
        compare(&pred, &gold);
    }

    #[test]
    fn any_latex_is_judged_without_a_panic(
        pieces in prop::collection::vec(
            prop::sample::select(vec![
                "\\frac", "{", "}", "(", ")", "[", "]", "\\{", "\\}", "1", "x", "^", "_", "+", "-", "=", "<",
                ",", ";", "|", "\\sqrt", "\\sin", "\\pm", "\\cup", "\\text{a}", "\\boxed{", "$", "%", "!",
                "\\begin{pmatrix}", "\\end{pmatrix}", "&", "\\\\", "\\infty", ":", "f", "\\in", ".", "'",
                "\\lor", "\\ldots", "...", "√", "1e", "9th", " cm", "\\text{ or 3}", "\\phantom", "\\$", "€", " or ", "²",
            ]),
            0..40,
        ),
    ) {
        let text = pieces.concat();
        compare(&text, &text);
        compare(&format!("${text}$"), "1");
        compare("x=1", &format!("\\boxed{{{text}}}"));
    }
}
