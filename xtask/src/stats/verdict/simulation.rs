//! Coverage by simulation: how often the whole procedure is wrong, and how often it finds what is
//! there. Seeded, so that a failure is a change of the procedure and never bad luck.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};

use super::*;
use crate::stats::schedule::plan_block;
use crate::stats::sequence::Bet;

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
    /// Normal, and one run in ten takes 30 % longer.
    Outliers,
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
            Noise::Outliers => {
                let is_off = self.uniform() < 0.1;
                NOISE * self.normal() + if is_off { 1.3_f64.ln() } else { 0.0 }
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

/// One comparison until it is decided, with a look after every pair of blocks: the verdict, and the blocks
/// that it took.
fn decide(noise: Noise, experiment: u64, true_effect: f64, most_blocks: usize) -> (Verdict, usize) {
    let mut rng = ChaCha8Rng::seed_from_u64(20_261_201);
    rng.set_stream(experiment);
    let mut machine = Machine { rng, noise, walk: 0.0, runs: 0.0 };
    let mut times: Vec<[f64; LEGS]> = Vec::new();
    let margin = margin_interval(Margin { relative: 0.01, absolute: None }, Scale::LogRatio, &[]);
    // Only where one of these is excluded can the intervals say anything.
    let mut bets = [0.0, margin.low, margin.high].map(Bet::against);
    while times.len() < most_blocks {
        let mut block = [0.0; LEGS];
        for leg in plan_block(LEGS, experiment, times.len()) {
            let effect = if leg == 1 { true_effect } else { 0.0 };
            block[leg] = (machine.next_run() + effect).exp();
        }
        times.push(block);
        bets.iter_mut().for_each(|bet| bet.push((block[1] / block[0]).ln()));
        let [zero, low, high] = [&bets[0], &bets[1], &bets[2]].map(Bet::is_excluded);
        if times.len() % 2 == 1 || !(zero || low && high) {
            continue;
        }
        let against_base = |leg: usize| {
            let pairs: Vec<_> = times.iter().map(|block| (block[0], block[leg])).collect();
            let bootstrap =
                Bootstrap { seed: experiment, stream: leg as u64, resamples: RESAMPLES };
            with_sequence(paired_effect(&pairs, bootstrap).unwrap(), &pairs)
        };
        let floor = noise_floor(&against_base(2));
        let verdict = judge(&against_base(1), floor, margin, Better::Lower).verdict;
        if verdict != Verdict::Unresolved {
            return (verdict, times.len());
        }
    }
    (Verdict::Unresolved, most_blocks)
}

/// Comparisons until they are decided, on both processors.
fn decide_all(noise: Noise, true_effect: f64, count: u64) -> Vec<(Verdict, usize)> {
    let all = |range: std::ops::Range<u64>| -> Vec<_> {
        range.map(|experiment| decide(noise, experiment, true_effect, 40)).collect()
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| all(0..count / 2));
        let mut found = all(count / 2..count);
        found.extend(other.join().unwrap());
        found
    })
}

const EVERY_NOISE: [Noise; 5] =
    [Noise::Normal, Noise::HeavyTailed, Noise::LinearDrift, Noise::RandomWalk, Noise::Outliers];

fn is_difference(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Faster | Verdict::Slower)
}

/// Two thousand for each kind of noise: ten thousand in all, with up to sixteen looks each.
#[test]
fn looking_after_every_pair_of_blocks_errs_once_in_a_hundred_at_most() {
    for noise in EVERY_NOISE {
        let found = decide_all(noise, 0.0, 2_000);
        let wrong = found.iter().filter(|(verdict, _)| is_difference(*verdict)).count();
        assert!(wrong <= 20, "{noise:?}: {wrong} of 2000");
    }
}

#[test]
fn twice_the_noise_is_decided_long_before_the_last_block() {
    for noise in EVERY_NOISE {
        let mut found = decide_all(noise, 2.0 * NOISE, 300);
        let right = found.iter().filter(|(verdict, _)| *verdict == Verdict::Slower).count();
        found.sort_by_key(|(_, blocks)| *blocks);
        let median = found[found.len() / 2].1;
        // Outliers of seven times the effect in one run of ten leave fewer pairs that say something.
        let (least, most) = if matches!(noise, Noise::Outliers) { (200, 30) } else { (270, 20) };
        assert!(right >= least && median <= most, "{noise:?}: {right} of 300, {median} blocks");
    }
}

/// The tables of docs/METHODOLOGY.md: `cargo test -p xtask --bin xtask tables_of -- --ignored --nocapture`.
#[test]
#[ignore = "prints tables and asserts nothing"]
#[expect(clippy::print_stderr, reason = "a table for the docs")]
fn tables_of_methodology() {
    let differs = [Verdict::Faster, Verdict::Slower];
    for noise in EVERY_NOISE {
        let percent = |share: f64| format!("{:.1} %", 100.0 * share);
        let fixed = |effect| percent(share(noise, effect, &[12], &differs));
        let null = decide_all(noise, 0.0, 10_000);
        let wrong = null.iter().filter(|(verdict, _)| is_difference(*verdict)).count();
        let mut of_effect = decide_all(noise, 2.0 * NOISE, 2_000);
        of_effect.sort_by_key(|(_, blocks)| *blocks);
        let right = of_effect.iter().filter(|(verdict, _)| *verdict == Verdict::Slower).count();
        eprintln!(
            "| {noise:?} | {} | {} | {} | {} | {} |",
            fixed(0.0),
            fixed(2.0 * NOISE),
            percent(wrong as f64 / null.len() as f64),
            percent(right as f64 / of_effect.len() as f64),
            of_effect[of_effect.len() / 2].1,
        );
    }
}
