//! The runs that count, by leg and block, and what is drawn and paired from them.

use std::collections::BTreeMap;

use formats::cell_report::CellReport;

use crate::ab::config::{AbPlan, BASE, NULL};
use crate::ab::metric::{Kind, Metric, Values, read_values};
use crate::ab::samples::{AbStart, Log, RunEnd, RunStatus};
use crate::stats::interval::Bootstrap;
use crate::stats::verdict::{
    Effect, Margin, Scale, noise_floor, paired_difference, paired_effect, with_sequence,
};

/// Everything of the samples that judgements need, by leg and block.
pub(super) struct Table<'a> {
    pub(super) start: &'a AbStart,
    pub(super) log: &'a Log,
    pub(super) runs: BTreeMap<(&'a str, usize), Run<'a>>,
}

/// One run that counts.
pub(super) struct Run<'a> {
    pub(super) end: &'a RunEnd,
    pub(super) report: Option<CellReport>,
    pub(super) values: Values,
}

impl<'a> Table<'a> {
    pub(super) fn new(start: &'a AbStart, log: &'a Log) -> Table<'a> {
        let measured =
            |run: &&RunEnd| matches!(run.status, RunStatus::Accepted | RunStatus::Contended);
        let mut runs = BTreeMap::new();
        for end in log.runs.iter().filter(measured) {
            let report = end.cell_report();
            let measured = end.measured.unwrap_or_default();
            let values = read_values(&measured, report.as_ref(), end.process.rss_peak_bytes);
            runs.entry((end.leg.as_str(), end.block)).or_insert(Run { end, report, values });
        }
        Table { start, log, runs }
    }

    pub(super) fn plan(&self) -> &'a AbPlan {
        &self.start.plan
    }

    pub(super) fn of_leg<'b>(&'b self, leg: &'b str) -> impl Iterator<Item = &'b Run<'a>> {
        self.runs.range((leg, 0)..=(leg, usize::MAX)).map(|(_, run)| run)
    }

    /// The runs of some legs in each block that has them all.
    pub(super) fn blocks_of<'b, const N: usize>(
        &'b self,
        legs: [&'b str; N],
    ) -> Vec<[&'b Run<'a>; N]> {
        let blocks = self.of_leg(legs[0]).map(|run| run.end.block);
        blocks
            .filter_map(|block| {
                let runs: Vec<&Run<'a>> =
                    legs.iter().map(|leg| self.runs.get(&(*leg, block))).collect::<Option<_>>()?;
                runs.try_into().ok()
            })
            .collect()
    }

    pub(super) fn pairs(&self, leg: &str, metric: Metric) -> Vec<(f64, f64)> {
        self.blocks_of([BASE, leg])
            .iter()
            .filter_map(|[base, leg]| Some((*base.values.get(&metric)?, *leg.values.get(&metric)?)))
            .collect()
    }

    /// A sequence of the seed of its own for each thing that is drawn.
    pub(super) fn bootstrap(&self, leg: &str, metric: Option<Metric>, purpose: u64) -> Bootstrap {
        let leg = self.plan().legs.iter().position(|other| other.name == leg).unwrap_or(0) as u64;
        let metric = metric.map_or(0, |metric| metric as u64 + 1);
        Bootstrap {
            seed: self.plan().seed,
            stream: (leg * 100 + metric) * 100 + purpose,
            resamples: Bootstrap::RESAMPLES,
        }
    }

    pub(super) fn effect(&self, leg: &str, metric: Metric) -> Option<Effect> {
        let (pairs, bootstrap) = (self.pairs(leg, metric), self.bootstrap(leg, Some(metric), 0));
        let effect = match metric.kind() {
            Kind::Slope => paired_difference(&pairs, bootstrap),
            Kind::Time | Kind::Count | Kind::Memory => paired_effect(&pairs, bootstrap),
        }?;
        let decides = self.plan().until_decided && metric == self.plan().primary;
        Some(if decides { with_sequence(effect, &pairs) } else { effect })
    }

    /// What base shows against itself, on the scale of an effect. A leg with a zero is compared by
    /// difference, and then the null leg is as well; the other way round there is no floor.
    pub(super) fn floor(&self, metric: Metric, scale: Scale) -> Option<f64> {
        let null = self.effect(NULL, metric)?;
        match (scale, null.scale) {
            (Scale::LogRatio, Scale::LogRatio) | (Scale::Difference, Scale::Difference) => {
                Some(noise_floor(&null))
            }
            (Scale::Difference, Scale::LogRatio) => {
                let bootstrap = self.bootstrap(NULL, Some(metric), 2);
                paired_difference(&self.pairs(NULL, metric), bootstrap).map(|e| noise_floor(&e))
            }
            (Scale::LogRatio, Scale::Difference) => None,
        }
    }

    pub(super) fn margin(&self, metric: Metric) -> Margin {
        let absolute = match metric.kind() {
            Kind::Slope => Some(self.plan().flat_mib_per_token),
            Kind::Time | Kind::Count | Kind::Memory => None,
        };
        Margin { relative: self.plan().margin_pct / 100.0, absolute }
    }
}
