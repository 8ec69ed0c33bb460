//! Quantiles of Student's t for whole degrees of freedom.

/// A probability whose quantiles are asked for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Tail {
    /// P(T ≤ quantile), above one half.
    probability: f64,
    /// The same quantile of the normal distribution.
    normal: f64,
}

impl Tail {
    /// The upper end of a two-sided 95 % interval.
    pub(crate) const INTERVAL: Tail = Tail { probability: 0.975, normal: 1.959_963_984_540_054 };
    /// A power of 80 %.
    pub(crate) const POWER: Tail = Tail { probability: 0.80, normal: 0.841_621_233_572_914_3 };

    /// The quantile of the standard normal distribution.
    pub(crate) fn normal_quantile(self) -> f64 {
        self.normal
    }

    /// The quantile of Student's t with `freedom` degrees of freedom; infinite for none.
    ///
    /// Up to 200 by halving the exact distribution function; above, the expansion about the normal
    /// quantile (Abramowitz and Stegun 26.7.5), which is right to nine digits there.
    pub(crate) fn student_quantile(self, freedom: usize) -> f64 {
        match freedom {
            0 => f64::INFINITY,
            1..=200 => self.exact_quantile(freedom),
            _ => self.expanded_quantile(freedom as f64),
        }
    }

    fn exact_quantile(self, freedom: usize) -> f64 {
        let (mut low, mut high) = (0.0, std::f64::consts::FRAC_PI_2);
        // Each turn gains one bit of the angle; 60 are more than a double holds.
        for _ in 0..60 {
            let middle = f64::midpoint(low, high);
            if probability_within(middle, freedom) < 2.0 * self.probability - 1.0 {
                low = middle;
            } else {
                high = middle;
            }
        }
        low.tan() * (freedom as f64).sqrt()
    }

    fn expanded_quantile(self, freedom: f64) -> f64 {
        let z = self.normal;
        let first = (z.powi(3) + z) / 4.0;
        let second = (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / 96.0;
        let third = (3.0 * z.powi(7) + 19.0 * z.powi(5) + 17.0 * z.powi(3) - 15.0 * z) / 384.0;
        z + first / freedom + second / freedom.powi(2) + third / freedom.powi(3)
    }
}

/// P(|T| ≤ t) with `angle` = arctan(t/√freedom): the finite sums for whole degrees of freedom
/// (Abramowitz and Stegun 26.7.3 and 26.7.4).
fn probability_within(angle: f64, freedom: usize) -> f64 {
    let (sine, cosine) = angle.sin_cos();
    let odd = freedom % 2 == 1;
    // Powers of the cosine from 1 (odd) or 0 (even) up to freedom − 2, in steps of two, each
    // coefficient from the one before.
    let (mut term, mut power) = if odd { (cosine, 1) } else { (1.0, 0) };
    let mut sum = 0.0;
    while power + 2 <= freedom {
        sum += term;
        term *= cosine * cosine * (power + 1) as f64 / (power + 2) as f64;
        power += 2;
    }
    if odd { (angle + sine * sum) * std::f64::consts::FRAC_2_PI } else { sine * sum }
}
