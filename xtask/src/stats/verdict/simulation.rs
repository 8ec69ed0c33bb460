//! Coverage by simulation: how often the whole procedure is wrong, and how often it finds what is
//! there. Seeded, so that a failure is a change of the procedure and never bad luck.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::*;
use crate::stats::schedule::plan_block;

const EXPERIMENTS: usize = 2_000;
/// Fewer resamples than a real comparison draws. That makes the drawn interval narrower if
/// anything, and the signed-rank
/// interval, which is not drawn, bounds them.
const RESAMPLES: usize = 40;
/// Relative noise of one run.
const NOISE: f64 = 0.02;
/// base, test, null.
const LEGS: usize = 3;

/// How the logarithm of a run's time departs from its leg's.
#[derive(Debug, Clone, Copy)]
enum Noise {
    Normal,
    /// Student's t with three degrees of freedom, scaled to the same median absolute deviation.
    HeavyTailed,
    /// Every run is one percent slower than the one before.
    LinearDrift,
    /// The machine's speed wanders: a random walk, each step half as large as the noise.
    RandomWalk,
}

struct Machine {
    rng: ChaCha8Rng,
    noise: Noise,
    walk: f64,
    runs: f64,
}

impl Machine {
    fn uniform(&mut self) -> f64 {
        (f64::from(self.rng.next_u32()) + 0.5) / 4_294_967_296.0
    }

    /// Box and Muller.
    fn normal(&mut self) -> f64 {
        let (radius, angle) = (self.uniform(), self.uniform());
        (-2.0 * radius.ln()).sqrt() * (std::f64::consts::TAU * angle).cos()
    }

    fn student_3(&mut self) -> f64 {
        let squares: f64 = (0..3).map(|_| self.normal().powi(2)).sum();
        self.normal() / (squares / 3.0).sqrt()
    }

    /// The logarithm of the next run's time.
    fn next_run(&mut self) -> f64 {
        self.runs += 1.0;
        match self.noise {
            Noise::Normal => NOISE * self.normal(),
            // 0.6745 and 0.7649: the third quartiles of the normal and of Student's t with 3.
            Noise::HeavyTailed => NOISE * self.student_3() * 0.6745 / 0.7649,
            Noise::LinearDrift => 0.01 * self.runs + NOISE * self.normal(),
            Noise::RandomWalk => {
                self.walk += NOISE / 2.0 * self.normal();
                self.walk + NOISE * self.normal()
            }
        }
    }
}

/// One comparison from scratch: `blocks` says after which numbers of blocks to look, and stops at the
/// last or once the interval is narrower than the margin.
fn verdict_of(noise: Noise, experiment: u64, true_effect: f64, looks: &[usize]) -> Verdict {
    let mut rng = ChaCha8Rng::seed_from_u64(20_260_808);
    rng.set_stream(experiment);
    let mut machine = Machine { rng, noise, walk: 0.0, runs: 0.0 };
    let mut times = Vec::new();
    for (index, blocks) in looks.iter().enumerate() {
        while times.len() < *blocks {
            let mut block = [0.0; LEGS];
            for leg in plan_block(LEGS, experiment, times.len()) {
                let effect = if leg == 1 { true_effect } else { 0.0 };
                block[leg] = (machine.next_run() + effect).exp();
            }
            times.push(block);
        }
        let against_base = |leg: usize| {
            let pairs: Vec<_> = times.iter().map(|block| (block[0], block[leg])).collect();
            let stream = leg as u64;
            paired_effect(&pairs, Bootstrap { seed: experiment, stream, resamples: RESAMPLES })
        };
        let test = against_base(1).unwrap();
        let margin = margin_interval(Margin { relative: 0.01, absolute: None }, test.scale, &[]);
        if index + 1 == looks.len() || test.center.interval.width() <= margin.high {
            let floor = noise_floor(&against_base(2).unwrap());
            return judge(&test, floor, margin, Better::Lower).verdict;
        }
    }
    unreachable!("the last look returns")
}

/// The share of experiments whose verdict is one of `words`, on both processors.
fn share(noise: Noise, true_effect: f64, looks: &[usize], words: &[Verdict]) -> f64 {
    let count = |range: std::ops::Range<u64>| {
        range
            .filter(|experiment| {
                words.contains(&verdict_of(noise, *experiment, true_effect, looks))
            })
            .count()
    };
    let half = EXPERIMENTS as u64 / 2;
    let hits = std::thread::scope(|scope| {
        let other = scope.spawn(|| count(0..half));
        count(half..2 * half) + other.join().unwrap()
    });
    hits as f64 / EXPERIMENTS as f64
}

const ALL_NOISE: [Noise; 4] =
    [Noise::Normal, Noise::HeavyTailed, Noise::LinearDrift, Noise::RandomWalk];

#[test]
fn false_verdicts_are_at_most_one_in_twenty() {
    for noise in ALL_NOISE {
        for blocks in [5, 6, 12] {
            let wrong = share(noise, 0.0, &[blocks], &[Verdict::Faster, Verdict::Slower]);
            assert!(wrong <= 0.05, "{noise:?}, {blocks} blocks: {wrong}");
        }
    }
}

#[test]
fn growing_until_the_interval_is_narrow_keeps_the_error_rate() {
    let looks = [6, 8, 12, 16];
    for noise in [Noise::Normal, Noise::HeavyTailed] {
        let wrong = share(noise, 0.0, &looks, &[Verdict::Faster, Verdict::Slower]);
        assert!(wrong <= 0.05, "{noise:?}: {wrong}");
    }
}

#[test]
fn an_effect_of_twice_the_noise_is_found() {
    for noise in ALL_NOISE {
        let found = share(noise, 2.0 * NOISE, &[6, 20], &[Verdict::Slower]);
        assert!(found >= 0.80, "{noise:?}: {found}");
    }
}
