//! Every number that the mixture assumes, in one place, each with its reason.
//!
//! Few, round and flat on purpose: fifteen learned hyper-parameters won nothing in
//! cross-validation by study (`docs/design/forecast-method.md`).

/// A normal prior, mostly of a logarithm.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Bell {
    pub(crate) mean: f64,
    pub(crate) sd: f64,
}

impl Bell {
    /// Log density without its constant.
    pub(crate) fn log_density(&self, value: f64) -> f64 {
        -0.5 * ((value - self.mean) / self.sd).powi(2)
    }
}

pub(crate) const TAIL_COUNT: usize = 4;
pub(crate) const STEEPNESS_POINTS: usize = 9;
pub(crate) const MIDPOINT_POINTS: usize = 13;

/// The assumptions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Settings {
    /// q of g = 1 - (1 + u/q)^-q: 1 is the law, small ones have heavy tails, large ones thin.
    pub(crate) tails: [f64; TAIL_COUNT],
    /// Range of B.
    pub(crate) steepness_range: (f64, f64),
    /// Range of c, in units of the last compute.
    pub(crate) midpoint_range: (f64, f64),
    /// Of ln B, how the rise begins.
    pub(crate) onset: Bell,
    /// Of ln(B q), the exponent with which the rise ends: so the weight of q follows.
    pub(crate) tail: Bell,
    /// Of ln(c / C_n): nearly flat.
    pub(crate) midpoint: Bell,
    /// Drift per root e-fold.
    pub(crate) taus: [f64; 5],
    pub(crate) tau: Bell,
    /// Distrust of the warm-up, with log weights.
    pub(crate) lambdas: [(f64, f64); 3],
    /// Noise over binomial, or over the scale read off the points: fixed prompts have about 0.55 of
    /// binomial, fresh ones 1 and more.
    pub(crate) factors: [f64; 7],
    pub(crate) factor: Bell,
    /// The gain still to come, equally likely: peaked and wide.
    pub(crate) gains: [Bell; 3],
    pub(crate) ceiling: Bell,
    /// Of the floor, around the first point.
    pub(crate) floor_sd: f64,
    /// A point this many noise scales below the second-best before it is a dip.
    pub(crate) dip_noises: f64,
    /// Is a dip only as deep as the run comes back from it? Else a fall is one long dip.
    pub(crate) dips_come_back: bool,
    /// Of every cell's forecast standard deviation; calibrated on finished runs.
    pub(crate) inflation: f64,
    /// Prior weight of "like one of the finished runs".
    pub(crate) history_weight: f64,
    /// How far ceilings of runs of one task lie apart, beyond what is known of each.
    pub(crate) ceiling_spread: f64,
    /// The same of ln B.
    pub(crate) steepness_spread: f64,
}

impl Settings {
    /// Those of the reference (`scripts/golden/mixture_fits.py`).
    pub(crate) const REFERENCE: Self = Self {
        tails: [0.4, 1.0, 2.5, 6.0],
        steepness_range: (0.4, 6.0),
        midpoint_range: (0.004, 8.0),
        onset: Bell { mean: 0.262_364_264_467_491_06, sd: 0.7 }, // ln 1.3
        tail: Bell { mean: 0.788_457_360_364_270_2, sd: 0.6 },   // ln 2.2
        midpoint: Bell { mean: -std::f64::consts::LN_2, sd: 2.5 },
        taus: [0.0015, 0.004, 0.01, 0.025, 0.06],
        tau: Bell { mean: -4.605_170_185_988_091, sd: 1.0 }, // ln 0.01
        lambdas: [(0.03, 0.0), (0.3, -0.5), (1.0, -1.0)],
        factors: [0.3, 0.42, 0.6, 0.85, 1.2, 1.7, 2.5],
        factor: Bell { mean: -0.287_682_072_451_780_9, sd: 0.5 }, // ln 0.75
        gains: [
            Bell { mean: 0.0, sd: 0.05 },
            Bell { mean: 0.0, sd: 0.15 },
            Bell { mean: 0.0, sd: 0.4 },
        ],
        ceiling: Bell { mean: 0.65, sd: 0.4 },
        floor_sd: 0.3,
        dip_noises: 3.0,
        dips_come_back: false,
        inflation: 1.2,
        history_weight: 0.8,
        ceiling_spread: 0.012,
        steepness_spread: 0.12,
    };

    /// The reference, bettered where it failed: falls are no dips, what is still to come is more
    /// often a gain than a loss, and rises end a little faster (better on both halves of the
    /// recorded runs: `docs/log.md`).
    pub(crate) const SHIPPED: Self = Self {
        tail: Bell { mean: 0.955_511_445_027_436_3, sd: 0.6 }, // ln 2.6
        gains: [
            Bell { mean: 0.02, sd: 0.05 },
            Bell { mean: 0.06, sd: 0.15 },
            Bell { mean: 0.12, sd: 0.4 },
        ],
        dips_come_back: true,
        ..Self::REFERENCE
    };

    /// Prior of ln B given the tail q: the product of `onset` and `tail`.
    pub(crate) fn steepness_given(&self, tail: f64) -> Bell {
        let (onset, end) = (self.onset.sd.powi(-2), self.tail.sd.powi(-2));
        let mean = (self.onset.mean * onset + (self.tail.mean - tail.ln()) * end) / (onset + end);
        Bell { mean, sd: (onset + end).sqrt().recip() }
    }

    /// Prior shares of the tails.
    pub(crate) fn tail_shares(&self) -> [f64; TAIL_COUNT] {
        let variance = self.onset.sd.powi(2) + self.tail.sd.powi(2);
        let log_share =
            |q: f64| -0.5 * (self.onset.mean - self.tail.mean + q.ln()).powi(2) / variance;
        let shares = self.tails.map(|q| log_share(q).exp());
        let total: f64 = shares.iter().sum();
        shares.map(|share| share / total)
    }
}
