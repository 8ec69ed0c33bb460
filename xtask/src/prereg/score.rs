//! The scorecard of the expectations: which held, and how well the confidences were placed.

use serde::Serialize;

use super::document::{Document, Expectation};
use super::judge::Conditions;
use crate::stats::expr::Truth;

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scored {
    pub(crate) number: String,
    pub(crate) probability: f64,
    /// Whether it held; `None` where that cannot be told.
    pub(crate) held: Option<bool>,
    /// The values that it uses, or why it cannot be told.
    pub(crate) why: String,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Scorecard {
    pub(crate) expectations: Vec<Scored>,
    /// The mean of `(p − held)²` over those that can be told: 0 is perfect, 0.25 is what saying 50 %
    /// every time yields, 1 is certain and wrong. `None` where none can be told.
    pub(crate) brier: Option<f64>,
}

pub(crate) fn score(document: &Document, conditions: &Conditions<'_>) -> Scorecard {
    let expectations: Vec<Scored> =
        document.expectations.iter().map(|one| score_one(one, conditions)).collect();
    let brier =
        brier(expectations.iter().filter_map(|scored| Some((scored.probability, scored.held?))));
    Scorecard { expectations, brier }
}

fn score_one(expectation: &Expectation, conditions: &Conditions<'_>) -> Scored {
    let (held, why) = match expectation.holds.truth(conditions) {
        Truth::True => (Some(true), conditions.explain(&expectation.holds)),
        Truth::False => (Some(false), conditions.explain(&expectation.holds)),
        Truth::Void(why) | Truth::Missing(why) => (None, why),
    };
    Scored {
        number: expectation.number.clone(),
        probability: expectation.confidence.probability(),
        held,
        why,
    }
}

/// Brier's score (Monthly Weather Review 78, 1950), in its form for yes and no.
fn brier(forecasts: impl Iterator<Item = (f64, bool)>) -> Option<f64> {
    let squares: Vec<f64> =
        forecasts.map(|(p, held)| (p - f64::from(u8::from(held))).powi(2)).collect();
    (!squares.is_empty()).then(|| squares.iter().sum::<f64>() / squares.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brier_by_hand() {
        // (0.9 − 1)² = 0.01, (0.6 − 0)² = 0.36; their mean is 0.185.
        let score = brier([(0.9, true), (0.6, false)].into_iter()).unwrap();
        assert!((score - 0.185).abs() < 1e-12, "{score}");
        assert_eq!(brier([(1.0, false)].into_iter()), Some(1.0));
        assert_eq!(brier(std::iter::empty()), None);
    }
}
