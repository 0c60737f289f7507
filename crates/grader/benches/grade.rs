//! Speed of the grader in CPU time, so that a busy machine does not count. Table: docs/grading.md.

use std::hint::black_box;
use std::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use scalerl_grader::{Grader, Options};

/// The time this thread ran.
struct CpuTime;

fn cpu_time() -> Duration {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(now.tv_sec.unsigned_abs(), u32::try_from(now.tv_nsec).unwrap_or(0))
}

impl Measurement for CpuTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        cpu_time()
    }

    fn end(&self, start: Duration) -> Duration {
        cpu_time().saturating_sub(start)
    }

    fn add(&self, a: &Duration, b: &Duration) -> Duration {
        *a + *b
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        value.as_nanos() as f64
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn grade(criterion: &mut Criterion<CpuTime>) {
    for evaluated in [false, true] {
        let mut options = Options::default();
        options.evaluated = evaluated;
        let grader = Grader::try_new(options).expect("these options can be meant");
        let name = if evaluated { "grade evaluated" } else { "grade" };
        grade_groups(criterion, name, &grader);
    }
}

fn grade_groups(criterion: &mut Criterion<CpuTime>, name: &str, grader: &Grader) {
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
    let mut group = criterion.benchmark_group(name);
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

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(CpuTime);
    targets = grade
}
criterion_main!(benches);
