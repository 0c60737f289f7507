//! Speed of the native grader. Table and machine: docs/grading.md.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use scalerl_grader::Grader;

fn grade(criterion: &mut Criterion) {
    let grader = Grader::default();
    let prose = "We add 3 and 4 to get 7, then multiply by 6. ".repeat(40);
    let groups: [(&str, Vec<(String, String)>); 4] = [
        ("numbers", (0..100).map(|i| (format!("{}", i * 37), format!("{},000", i + 1))).collect()),
        (
            "boxed numbers",
            (0..100)
                .map(|i| (format!("{}", i * 37), format!("So $\\boxed{{{}}}$.", i * 37)))
                .collect(),
        ),
        (
            "numbers after 1,800 characters",
            (0..100)
                .map(|i| (format!("{i}"), format!("{prose}The answer is \\boxed{{{i}}}.")))
                .collect(),
        ),
        (
            "expressions",
            (1..101)
                .map(|i| {
                    (
                        format!("\\frac{{x+{i}}}{{\\sqrt{{{i}}}}}"),
                        format!("$\\boxed{{\\frac{{x}}{{\\sqrt{{{i}}}}}+\\sqrt{{{i}}}}}$"),
                    )
                })
                .collect(),
        ),
    ];
    let mut group = criterion.benchmark_group("grade");
    group.throughput(Throughput::Elements(100));
    for (name, pairs) in &groups {
        group.bench_function(*name, |bencher| {
            bencher.iter(|| {
                for (gold, pred) in pairs {
                    black_box(grader.grade(black_box(gold), black_box(pred)));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, grade);
criterion_main!(benches);
