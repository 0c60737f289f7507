//! Chat templates that do not end, or want all memory there is.

use scalerl_model::template::{ChatTemplate, Prompt};
use serde_json::json;

use crate::{folder_with, peak_memory};

/// What a template says about itself when it is rendered: its text, or why there is none.
fn rendered(source: &str) -> Result<String, String> {
    let folder = folder_with("chat_template.jinja", source);
    let messages = [json!({"role": "user", "content": "Hi"})];
    let template = ChatTemplate::load(folder.path()).map_err(|error| error.to_string())?.unwrap();
    template.render(&messages, Prompt::Open).map_err(|error| error.to_string())
}

/// Side by side: some wait for their deadline.
fn refused(cases: &[(&str, String)]) {
    std::thread::scope(|scope| {
        let started = cases.iter().map(|(name, source)| (name, scope.spawn(|| rendered(source))));
        for (name, case) in started.collect::<Vec<_>>() {
            let said = match case.join().unwrap() {
                Ok(text) => panic!("{name} was rendered, {} bytes", text.len()),
                Err(said) => said,
            };
            assert!(said.contains("chat_template.jinja"), "{name}: {said}");
            println!("{name}: {said}");
        }
    });
    println!("hostile cases: {}", cases.len());
}

#[test]
fn loops_without_end_run_out_of_fuel() {
    let r = "range(100000)";
    refused(&[
        ("nested loops", format!("{{% for a in {r} %}}{{% for b in {r} %}}x{{% endfor %}}{{% endfor %}}")),
        ("silent loops", format!("{{% for a in {r} %}}{{% for b in {r} %}}{{% set c = a * b %}}{{% endfor %}}{{% endfor %}}")),
        ("a macro that calls itself twice", "{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}".into()),
        ("a recursive loop", "{% for a in [1,2] recursive %}{{ loop([1,2]) }}{% endfor %}".into()),
        ("a macro that calls itself", "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}".into()),
    ]);
}

#[test]
fn one_step_that_takes_for_ever_or_all_memory_is_stopped() {
    let before = peak_memory();
    let double = |what: &str, times: u32| {
        format!(
            "{{% set ns = namespace(s={what}) %}}{{% for i in range({times}) %}}{{% set ns.s = ns.s + ns.s %}}{{% endfor %}}"
        )
    };
    refused(&[
        ("a wide number", "{{ \"%999999999d\"|format(1) }}".into()),
        ("a wide text", "{{ '{:999999999}'.format('x') }}".into()),
        ("a precise number", "{{ \"%.999999999f\"|format(1.5) }}".into()),
        ("a width from an argument", "{{ \"%*d\"|format(999999999, 1) }}".into()),
        ("a text doubled", format!("{}{{{{ ns.s }}}}", double("'x'", 60))),
        ("a text doubled by ~", "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}".into()),
        ("a capture doubled", "{% set ns = namespace(s='x') %}{% for i in range(60) %}{% set t %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = t %}{% endfor %}".into()),
        ("a list doubled and joined", format!("{}{{{{ ns.s|join }}}}", double("[1]", 60))),
        ("a list doubled and counted", format!("{}{{{{ ns.s|list|length }}}}", double("[1]", 60))),
        ("a list doubled and searched", format!("{}{{{{ 2 in ns.s }}}}", double("[1]", 60))),
        ("a list doubled and summed", format!("{}{{{{ ns.s|sum }}}}", double("[1]", 60))),
        ("a list doubled and printed", format!("{}{{{{ ns.s }}}}", double("[1]", 60))),
        ("a repeated text repeated", "{{ ('x' * 100000 * 100000)|length }}".into()),
        ("a repeated list", "{{ ([1] * 999999999999)|list|length }}".into()),
        ("replacing nothing by much", "{{ ('x' * 100000)|replace('', 'y' * 100000) }}".into()),
        ("a deep indent", "{{ ('x\n' * 10000)|indent(99999999) }}".into()),
        ("a deep JSON indent", "{{ [[1]]|tojson(indent=99999999999) }}".into()),
        ("joining by much", "{{ range(100000)|join('y' * 100000) }}".into()),
        ("large batches", "{{ [1]|batch(999999999999, 0)|list }}".into()),
        ("large slices", "{{ [1]|slice(999999999999, 0)|list }}".into()),
        ("a text centred", "{{ 'x'.center(99999999999) }}".into()),
        ("a text filled with zeros", "{{ 'x'.zfill(99999999999) }}".into()),
        ("a text filled up", "{{ 'x'.ljust(99999999999) }}".into()),
        ("a large power", "{{ 10 ** 99999999 }}".into()),
    ]);
    let used = peak_memory() - before;
    // Those that hit the limit keep what they had, less than 256 MiB each.
    assert!(used < 6 << 30, "{} MiB", used >> 20);
    println!("together they used {} MiB", used >> 20);
}

#[test]
fn deep_templates_do_not_end_the_process() {
    let deep = |open: &str, inner: &str, close: &str, times: usize| {
        format!("{}{inner}{}", open.repeat(times), close.repeat(times))
    };
    // As deep as the fuel goes.
    let nested = |inner: &str, last: &str| {
        format!(
            "{{% set ns = namespace(s=[]) %}}{{% for i in range(3) %}}{{% for i in range(100000) %}}{{% set ns.s = {inner} %}}{{% endfor %}}{{% endfor %}}{last}"
        )
    };
    // Whatever they give, the process goes on.
    let cases = [
        format!("{{{{ {} }}}}", deep("(", "1", ")", 200_000)),
        format!("{{{{ {} }}}}", deep("[", "1", "]", 200_000)),
        format!("{{{{ {}1 }}}}", "-".repeat(400_000)),
        format!("{{{{ {}1 }}}}", "not ".repeat(100_000)),
        format!("{{{{ 1{} }}}}", "+1".repeat(200_000)),
        format!("{{{{ 1{} }}}}", "~1".repeat(200_000)),
        format!("{{{{ x{} }}}}", ".a".repeat(200_000)),
        format!("{{{{ x{} }}}}", "|e".repeat(200_000)),
        format!("{{{{ x{} }}}}", "[0]".repeat(150_000)),
        deep("{% if 1 %}", "x", "{% endif %}", 20_000),
        deep("{% for a in b %}", "x", "{% endfor %}", 15_000),
        format!("{{% if 1 %}}{}{{% endif %}}", "{% elif 1 %}".repeat(40_000)),
        nested("[ns.s]", "x"),
        nested("[ns.s]", "{{ ns.s }}"),
        nested("[ns.s]", "{{ ns.s == [ns.s] }}"),
        nested("{'a': ns.s}", "{{ ns.s|tojson }}"),
    ];
    for source in &cases {
        let start = &source[..source.len().min(40)];
        match rendered(source) {
            Ok(text) => println!("{start}…: {} bytes", text.len()),
            Err(said) => println!("{start}…: {}", &said[..said.len().min(200)]),
        }
    }
    println!("hostile cases: {}", cases.len());
}

#[test]
fn values_that_hold_themselves_do_not_end_the_process() {
    let own = "{% set ns = namespace() %}{% set ns.s = [ns] %}";
    refused(&[
        ("printed", format!("{own}{{{{ ns }}}}")),
        ("as text", format!("{own}{{{{ ns|string|length }}}}")),
        ("as JSON", format!("{own}{{{{ ns|tojson }}}}")),
        ("put together", format!("{own}{{{{ 'x' ~ ns }}}}")),
        ("formatted", format!("{own}{{{{ '%s'|format(ns) }}}}")),
        ("printed prettily", format!("{own}{{{{ ns|pprint }}}}")),
        ("debugged", format!("{own}{{{{ debug() }}}}")),
    ]);
    // Comparing ends by itself or is refused.
    for asked in [
        "ns == ns",
        "ns.s == [ns]",
        "ns in [1, ns]",
        "[ns, ns]|unique|list|length",
        "[ns, ns]|sort|length",
    ] {
        let outcome = rendered(&format!("{own}{{{{ {asked} }}}}"));
        println!("{asked}: {outcome:?}");
    }
    println!("hostile cases: 5");
}

#[test]
fn a_long_conversation_is_no_attack() {
    let template = "{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' + m.content|trim + '<|im_end|>\\n' }}{% endfor %}";
    let folder = folder_with("chat_template.jinja", template);
    let template = ChatTemplate::load(folder.path()).unwrap().unwrap();
    let content = "word ".repeat(2000);
    let messages: Vec<_> =
        (0..1000).map(|_| json!({"role": "user", "content": content.as_str()})).collect();
    let text = template.render(&messages, Prompt::Open).unwrap();
    assert_eq!(text.len(), 1000 * ("<|im_start|>user\n<|im_end|>\n".len() + content.len() - 1));
}
