//! Which checks there are, and the runs that each of them needs.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Setting {
    /// Nothing set: the policy is in force with its own cap.
    On,
    Killed,
    Unbounded,
    CapMib(u64),
}

impl Setting {
    /// As names of runs have it.
    pub(crate) fn name(self) -> String {
        match self {
            Setting::On => "on".to_owned(),
            Setting::Killed => "killed".to_owned(),
            Setting::Unbounded => "unbounded".to_owned(),
            Setting::CapMib(mib) => format!("cap-{mib}-mib"),
        }
    }

    /// The variables: each is set or removed, whatever the shell has.
    pub(crate) fn env(self) -> Vec<(String, Option<String>)> {
        let (kill, cap) = match self {
            Setting::On => (None, None),
            Setting::Killed => (Some("0".to_owned()), None),
            Setting::Unbounded => (None, Some("0".to_owned())),
            Setting::CapMib(mib) => (None, Some(mib.to_string())),
        };
        vec![
            ("ARC_CANDLE_ALLOC_CACHE".to_owned(), kill),
            ("ARC_ALLOC_CACHE_MAX_MB".to_owned(), cap),
            ("ARC_ALLOC_CACHE_STATS".to_owned(), None),
        ]
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Leg {
    pub(crate) name: String,
    pub(crate) model: String,
    pub(crate) setting: Setting,
    pub(crate) prompt_tokens: u64,
    pub(crate) max_tokens: u64,
    /// Device memory that is left free beside the cache when decoding begins.
    pub(crate) leave_free_mib: Option<u64>,
}

impl Leg {
    /// What it changes about the model's run, as a name; `None` where it changes nothing.
    pub(crate) fn variant(&self) -> Option<String> {
        match (self.setting, self.leave_free_mib) {
            (Setting::On, None) => None,
            (setting, None) => Some(setting.name()),
            (setting, Some(mib)) => Some(format!("{}-{mib}-mib-free", setting.name())),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckKind {
    /// The program runs at all, and on the device.
    Start,
    /// What the cache does to a decode step, on and killed by turns.
    Decode,
    /// Held memory over many tokens.
    Memory,
    /// A cap that almost nothing fits under.
    Cap,
    /// The device is full, and the cache gives back.
    OomRescue,
    /// A short run under NVIDIA's memory checker.
    Sanitizer,
    /// Capture of the step as a graph.
    GraphCapture,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Check {
    pub(crate) kind: CheckKind,
    pub(crate) name: String,
    pub(crate) legs: Vec<Leg>,
}

/// How thorough the checks are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Plan {
    /// Times that on and killed are run.
    pub(crate) pairs: usize,
    pub(crate) decode_tokens: u64,
    pub(crate) prompt_tokens: u64,
    pub(crate) curve_tokens: u64,
    pub(crate) all_models: bool,
}

impl Plan {
    pub(crate) const FULL: Plan = Plan {
        pairs: 3,
        decode_tokens: 129,
        prompt_tokens: 512,
        curve_tokens: 2500,
        all_models: true,
    };
    pub(crate) const QUICK: Plan = Plan {
        pairs: 1,
        decode_tokens: 65,
        prompt_tokens: 128,
        curve_tokens: 640,
        all_models: false,
    };
}

const CURVE_PROMPT: u64 = 64;
/// The cap that almost nothing fits under.
const TIGHT_CAP_MIB: u64 = 1;

/// The checks in the order in which they are made: what matters most first, and the large model after
/// everything about the small one, because the budget may end in it.
pub(crate) fn plan_checks(models: &[String], plan: Plan) -> Vec<Check> {
    let Some((first, others)) = models.split_first() else { return Vec::new() };
    let mut checks = vec![start(first), decode(first, plan)];
    checks.extend([
        memory(first, plan),
        cap(first, plan),
        oom_rescue(first, plan),
        sanitizer(first),
    ]);
    for model in others.iter().filter(|_| plan.all_models) {
        let pairs = plan.pairs.min(2);
        checks.extend([start(model), decode(model, Plan { pairs, ..plan })]);
    }
    checks.push(Check {
        kind: CheckKind::GraphCapture,
        name: "graph-capture".to_owned(),
        legs: Vec::new(),
    });
    checks
}

fn leg(model: &str, name: String, setting: Setting, prompt_tokens: u64, max_tokens: u64) -> Leg {
    let model = model.to_owned();
    Leg { name, model, setting, prompt_tokens, max_tokens, leave_free_mib: None }
}

fn start(model: &str) -> Check {
    Check {
        kind: CheckKind::Start,
        name: format!("start/{model}"),
        legs: vec![leg(model, "start".to_owned(), Setting::On, 16, 4)],
    }
}

fn decode(model: &str, plan: Plan) -> Check {
    let mut legs = Vec::new();
    for pair in 0..plan.pairs {
        let mut settings = [Setting::On, Setting::Killed];
        if pair % 2 == 1 {
            // What drifts, a clock that heats up, then does not favour one of them.
            settings.reverse();
        }
        for setting in settings {
            let name = format!("{}-{}", setting.name(), pair + 1);
            legs.push(leg(model, name, setting, plan.prompt_tokens, plan.decode_tokens));
        }
    }
    Check { kind: CheckKind::Decode, name: format!("decode/{model}"), legs }
}

fn memory(model: &str, plan: Plan) -> Check {
    let legs = [Setting::On, Setting::Unbounded, Setting::Killed]
        .map(|setting| leg(model, setting.name(), setting, CURVE_PROMPT, plan.curve_tokens));
    Check { kind: CheckKind::Memory, name: format!("memory/{model}"), legs: legs.to_vec() }
}

fn cap(model: &str, plan: Plan) -> Check {
    let setting = Setting::CapMib(TIGHT_CAP_MIB);
    Check {
        kind: CheckKind::Cap,
        name: format!("cap/{model}"),
        legs: vec![leg(model, setting.name(), setting, plan.prompt_tokens, plan.decode_tokens)],
    }
}

/// The same run as one of the decode check, on a device on which nothing is free beside the cache:
/// whatever the cache lacks, it must get by giving back what it holds.
fn oom_rescue(model: &str, plan: Plan) -> Check {
    let name = "oom-rescue".to_owned();
    let leg = leg(model, name, Setting::On, plan.prompt_tokens, plan.decode_tokens);
    Check {
        kind: CheckKind::OomRescue,
        name: format!("oom-rescue/{model}"),
        legs: vec![Leg { leave_free_mib: Some(0), ..leg }],
    }
}

fn sanitizer(model: &str) -> Check {
    Check {
        kind: CheckKind::Sanitizer,
        name: format!("sanitizer/{model}"),
        legs: vec![leg(model, "sanitizer".to_owned(), Setting::On, 16, 3)],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(models: &[&str], plan: Plan) -> Vec<String> {
        let models: Vec<String> = models.iter().map(|model| (*model).to_owned()).collect();
        plan_checks(&models, plan).into_iter().map(|check| check.name).collect()
    }

    #[test]
    fn the_large_model_comes_after_everything_about_the_small_one() {
        assert_eq!(
            names(&["1b", "8b"], Plan::FULL),
            [
                "start/1b",
                "decode/1b",
                "memory/1b",
                "cap/1b",
                "oom-rescue/1b",
                "sanitizer/1b",
                "start/8b",
                "decode/8b",
                "graph-capture"
            ]
        );
        assert!(!names(&["1b", "8b"], Plan::QUICK).contains(&"start/8b".to_owned()));
    }

    #[test]
    fn on_and_killed_take_turns_at_going_first() {
        let check = decode("m", Plan::FULL);
        let order: Vec<&str> = check.legs.iter().map(|leg| leg.name.as_str()).collect();
        assert_eq!(order, ["on-1", "killed-1", "killed-2", "on-2", "on-3", "killed-3"]);
    }

    #[test]
    fn the_full_device_meets_a_run_that_is_made_with_a_free_one_too() {
        let checks = plan_checks(&["m".to_owned()], Plan::FULL);
        let legs = |kind| &checks.iter().find(|check| check.kind == kind).unwrap().legs;
        let rescue = legs(CheckKind::OomRescue)[0].clone();
        assert_eq!(rescue.leave_free_mib, Some(0));
        let free = Leg { leave_free_mib: None, name: "on-1".to_owned(), ..rescue };
        assert!(legs(CheckKind::Decode).contains(&free));
    }

    #[test]
    fn a_setting_says_something_about_every_variable() {
        let value = |setting: Setting, name: &str| {
            setting.env().into_iter().find(|(known, _)| known == name).unwrap().1
        };
        for setting in [Setting::On, Setting::Killed, Setting::Unbounded, Setting::CapMib(1)] {
            assert_eq!(value(setting, "ARC_ALLOC_CACHE_STATS"), None);
        }
        assert_eq!(value(Setting::On, "ARC_CANDLE_ALLOC_CACHE"), None);
        assert_eq!(value(Setting::Killed, "ARC_CANDLE_ALLOC_CACHE").as_deref(), Some("0"));
        assert_eq!(value(Setting::Unbounded, "ARC_ALLOC_CACHE_MAX_MB").as_deref(), Some("0"));
        assert_eq!(value(Setting::CapMib(1), "ARC_ALLOC_CACHE_MAX_MB").as_deref(), Some("1"));
    }
}
