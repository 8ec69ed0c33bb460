//! When the cache is on, and what the environment says about it.
//!
//! Pure: values in, values out. Reading the environment and acting on the outcome belong to the
//! caller. Every variable is read by its value, never by its presence, and a value that is not
//! understood takes the bounded side with one warning.

use crate::alloc::stats::Mode;

/// Kill switch: `0`, `false`, `no` or `off` keep the cache off for the whole process.
pub const ENV_KILL_SWITCH: &str = "ARC_CANDLE_ALLOC_CACHE";
/// Cap on idle bytes in MiB; `0` alone is unbounded.
pub const ENV_CAP_MB: &str = "ARC_ALLOC_CACHE_MAX_MB";
/// What a prefill does with the cache: [`Prefill`].
pub const ENV_PREFILL: &str = "ARC_ALLOC_CACHE_PREFILL";
/// Every that many decode steps, one line with the counters.
pub const ENV_STATS_STEPS: &str = "ARC_ALLOC_CACHE_STATS";

/// The cap on idle bytes where nothing else is asked for.
pub const DEFAULT_CAP_BYTES: u64 = 1 << 30;
/// The default cap never takes more than this part of the memory that is free.
pub const DEFAULT_CAP_FREE_DIVISOR: u64 = 8;
/// The default cap never falls below this, however little memory is free.
pub const DEFAULT_CAP_FLOOR_BYTES: u64 = 64 << 20;

/// What to do with the cache before a forward.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Action {
    /// Switch the cache on.
    Enable,
    /// Give every idle block back to the driver and switch the cache off.
    DrainAndDisable,
    /// Keep the idle blocks of decode over a prefill that the cache does not serve.
    Hold,
    /// Serve a prefill, too.
    ServePrefill,
    /// It is already as it should be.
    Leave,
}

/// The policy: on for decode (`seq_len == 1`), drained and off for everything else.
///
/// A prefill's large one-shot buffers would otherwise stay in the cache under sizes that nothing
/// asks for again. `enabled` is the cache's present state, `killed` that of the kill switch.
#[must_use]
pub fn alloc_cache_action(seq_len: usize, enabled: bool, killed: bool) -> Action {
    match (seq_len == 1 && !killed, enabled) {
        (true, false) => Action::Enable,
        (false, true) => Action::DrainAndDisable,
        (true, true) | (false, false) => Action::Leave,
    }
}

/// What a prefill does with the cache. A prefill is a forward over any other number of tokens than 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Prefill {
    /// Every idle block goes back to the driver, and the cache is off until the next decode step.
    #[default]
    Drain,
    /// The idle blocks of decode stay, within the cap; prefill's own requests go past the cache, and
    /// none of their blocks is kept. Where the driver has less free than the cap, or has none for a
    /// request, they go back all the same.
    Hold,
    /// Prefill is served as well, but for blocks of more than an eighth of the cap.
    On,
}

impl Prefill {
    /// Its name, which is also how [`ENV_PREFILL`] says it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Prefill::Drain => "drain",
            Prefill::Hold => "hold",
            Prefill::On => "on",
        }
    }
}

/// [`alloc_cache_action`] under the given policy for prefill, for a cache in this mode.
#[must_use]
pub fn action_before(prefill: Prefill, seq_len: usize, mode: Mode) -> Action {
    match (mode, prefill) {
        (Mode::Closed, _) => Action::Leave,
        (Mode::On | Mode::Held, Prefill::Hold) if seq_len != 1 => Action::Hold,
        (Mode::On | Mode::Off, Prefill::On) if seq_len != 1 => Action::ServePrefill,
        (Mode::Prefill, _) if seq_len != 1 => Action::Leave,
        _ => alloc_cache_action(seq_len, mode == Mode::On, mode == Mode::Killed),
    }
}

/// Whether the kill switch is thrown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum KillSwitch {
    /// The policy decides.
    #[default]
    Policy,
    /// The cache stays off for the whole process.
    Killed,
}

/// The cap on idle bytes that is in force.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cap {
    /// At most that many idle bytes.
    Bounded(u64),
    /// No bound, by explicit request.
    Unbounded,
}

impl Cap {
    /// Whether `idle_bytes` are within the cap.
    #[must_use]
    pub fn admits(self, idle_bytes: u64) -> bool {
        match self {
            Cap::Bounded(cap_bytes) => idle_bytes <= cap_bytes,
            Cap::Unbounded => true,
        }
    }

    /// Whether a block of so many bytes is more than an eighth of the cap.
    #[must_use]
    pub fn is_large(self, bytes: u64) -> bool {
        match self {
            Cap::Bounded(cap_bytes) => bytes > cap_bytes / 8,
            Cap::Unbounded => false,
        }
    }

    /// The bound in bytes; `None` is unbounded.
    #[must_use]
    pub fn bytes(self) -> Option<u64> {
        match self {
            Cap::Bounded(cap_bytes) => Some(cap_bytes),
            Cap::Unbounded => None,
        }
    }
}

/// The cap that was asked for, before free memory is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum CapRequest {
    /// Nothing usable was asked for: the bounded default.
    #[default]
    Default,
    /// That many bytes, from the environment.
    Bytes(u64),
    /// Explicitly without a bound.
    Unbounded,
}

/// Where the cap in force came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum CapSource {
    /// The 1 GiB default.
    Default,
    /// An eighth of the memory that was free when the cache was first enabled.
    ShareOfFreeMemory,
    /// The 64 MiB floor: an eighth of the free memory is less.
    Floor,
    /// [`ENV_CAP_MB`].
    Environment,
}

impl CapSource {
    /// The source in words, for reports.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            CapSource::Default => "default of 1 GiB",
            CapSource::ShareOfFreeMemory => "an eighth of the free memory",
            CapSource::Floor => "floor of 64 MiB",
            CapSource::Environment => ENV_CAP_MB,
        }
    }
}

/// The cap in force and where it came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EffectiveCap {
    /// The cap.
    pub cap: Cap,
    /// Its source.
    pub source: CapSource,
    /// Whether the cap is larger than the memory that was free.
    pub exceeds_free_memory: bool,
}

/// Turns the request into the cap in force. `free_bytes` is the memory that is free when the cache
/// is first enabled, `None` where the driver cannot tell.
#[must_use]
pub fn plan_cap(request: CapRequest, free_bytes: Option<u64>) -> EffectiveCap {
    let (cap, source) = match request {
        CapRequest::Unbounded => (Cap::Unbounded, CapSource::Environment),
        CapRequest::Bytes(bytes) => (Cap::Bounded(bytes), CapSource::Environment),
        CapRequest::Default => {
            let share_bytes =
                free_bytes.map_or(DEFAULT_CAP_BYTES, |free| free / DEFAULT_CAP_FREE_DIVISOR);
            if share_bytes >= DEFAULT_CAP_BYTES {
                (Cap::Bounded(DEFAULT_CAP_BYTES), CapSource::Default)
            } else if share_bytes >= DEFAULT_CAP_FLOOR_BYTES {
                (Cap::Bounded(share_bytes), CapSource::ShareOfFreeMemory)
            } else {
                (Cap::Bounded(DEFAULT_CAP_FLOOR_BYTES), CapSource::Floor)
            }
        }
    };
    let exceeds_free_memory =
        matches!((cap, free_bytes), (Cap::Bounded(cap_bytes), Some(free)) if cap_bytes > free);
    EffectiveCap { cap, source, exceeds_free_memory }
}

/// One environment variable as it was read and understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvReading<T> {
    /// The variable's name.
    pub name: &'static str,
    /// Its value as found, made printable; `None` where it was not set.
    pub raw: Option<String>,
    /// What it means.
    pub value: T,
    /// What it means, in words.
    pub parsed: String,
    /// A warning, where the value was not understood.
    pub warning: Option<String>,
}

impl<T> EnvReading<T> {
    /// The reading as the cell report wants it.
    #[must_use]
    pub fn to_report(&self) -> formats::cell_report::EnvVar {
        formats::cell_report::EnvVar {
            name: self.name.to_owned(),
            raw: self.raw.clone(),
            parsed: Some(self.parsed.clone()),
        }
    }
}

/// Everything that the environment says about the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnvSettings {
    /// [`ENV_KILL_SWITCH`].
    pub kill_switch: EnvReading<KillSwitch>,
    /// [`ENV_CAP_MB`].
    pub cap: EnvReading<CapRequest>,
    /// [`ENV_PREFILL`].
    pub prefill: EnvReading<Prefill>,
    /// [`ENV_STATS_STEPS`]: the number of decode steps between two lines.
    pub stats_steps: EnvReading<Option<u64>>,
}

impl EnvSettings {
    /// Parses all four variables; `lookup` gives a variable's raw bytes.
    pub fn parse(mut lookup: impl FnMut(&str) -> Option<Vec<u8>>) -> Self {
        EnvSettings {
            kill_switch: parse_kill_switch(lookup(ENV_KILL_SWITCH).as_deref()),
            cap: parse_cap_mb(lookup(ENV_CAP_MB).as_deref()),
            prefill: parse_prefill(lookup(ENV_PREFILL).as_deref()),
            stats_steps: parse_stats_steps(lookup(ENV_STATS_STEPS).as_deref()),
        }
    }

    /// The warnings, at most one for each variable.
    pub fn warnings(&self) -> impl Iterator<Item = &str> {
        let Self { kill_switch, cap, prefill, stats_steps } = self;
        [&kill_switch.warning, &cap.warning, &prefill.warning, &stats_steps.warning]
            .into_iter()
            .filter_map(|warning| warning.as_deref())
    }

    /// The readings as the cell report wants them.
    #[must_use]
    pub fn to_report(&self) -> Vec<formats::cell_report::EnvVar> {
        let Self { kill_switch, cap, prefill, stats_steps } = self;
        vec![kill_switch.to_report(), cap.to_report(), prefill.to_report(), stats_steps.to_report()]
    }
}

/// Parses [`ENV_KILL_SWITCH`].
#[must_use]
pub fn parse_kill_switch(raw: Option<&[u8]>) -> EnvReading<KillSwitch> {
    let word = raw.map(normalise);
    let (value, recognised) = match word.as_deref() {
        Some("0" | "false" | "no" | "off") => (KillSwitch::Killed, true),
        None | Some("1" | "true" | "yes" | "on") => (KillSwitch::Policy, true),
        Some(_) => (KillSwitch::Policy, false),
    };
    let parsed = match value {
        KillSwitch::Killed => "killed",
        KillSwitch::Policy => "policy",
    };
    let warning = (!recognised).then(|| {
        format!(
            "{ENV_KILL_SWITCH}={}: not recognised, the policy stays in force; `0` switches the \
             cache off",
            printable(raw.unwrap_or_default())
        )
    });
    reading(ENV_KILL_SWITCH, raw, value, parsed.to_owned(), warning)
}

/// Parses [`ENV_CAP_MB`]. Only the exact bytes `0` mean unbounded.
#[must_use]
pub fn parse_cap_mb(raw: Option<&[u8]>) -> EnvReading<CapRequest> {
    let value = match raw {
        None => Some(CapRequest::Default),
        Some(b"0") => Some(CapRequest::Unbounded),
        Some(digits) => parse_decimal(digits)
            .filter(|&mb| mb > 0)
            .and_then(|mb| mb.checked_mul(1 << 20))
            .map(CapRequest::Bytes),
    };
    let warning = value.is_none().then(|| {
        format!(
            "{ENV_CAP_MB}={}: not a whole number of MiB, the bounded default applies; only `0` is \
             unbounded",
            printable(raw.unwrap_or_default())
        )
    });
    let value = value.unwrap_or_default();
    let parsed = match value {
        CapRequest::Default => "bounded default".to_owned(),
        CapRequest::Bytes(bytes) => format!("{bytes} bytes"),
        CapRequest::Unbounded => "unbounded".to_owned(),
    };
    reading(ENV_CAP_MB, raw, value, parsed, warning)
}

/// Parses [`ENV_PREFILL`].
#[must_use]
pub fn parse_prefill(raw: Option<&[u8]>) -> EnvReading<Prefill> {
    let word = raw.map(normalise);
    let known = [Prefill::Drain, Prefill::Hold, Prefill::On];
    let found = match word.as_deref() {
        None => Some(Prefill::default()),
        Some(word) => known.into_iter().find(|prefill| prefill.as_str() == word),
    };
    let warning = found.is_none().then(|| {
        format!(
            "{ENV_PREFILL}={}: not recognised, the cache is drained before a prefill; it may be \
             `drain`, `hold` or `on`",
            printable(raw.unwrap_or_default())
        )
    });
    let value = found.unwrap_or_default();
    reading(ENV_PREFILL, raw, value, value.as_str().to_owned(), warning)
}

/// Parses [`ENV_STATS_STEPS`].
#[must_use]
pub fn parse_stats_steps(raw: Option<&[u8]>) -> EnvReading<Option<u64>> {
    let word = raw.map(normalise);
    let (value, recognised) = match word.as_deref() {
        None | Some("" | "0" | "false" | "no" | "off") => (None, true),
        Some(word) => match parse_decimal(word.as_bytes()) {
            Some(0) => (None, true),
            Some(steps) => (Some(steps), true),
            None => (None, false),
        },
    };
    let parsed = value.map_or_else(|| "off".to_owned(), |steps| format!("every {steps} steps"));
    let warning = (!recognised).then(|| {
        format!(
            "{ENV_STATS_STEPS}={}: not a number of decode steps, no statistics are printed",
            printable(raw.unwrap_or_default())
        )
    });
    reading(ENV_STATS_STEPS, raw, value, parsed, warning)
}

fn reading<T>(
    name: &'static str,
    raw: Option<&[u8]>,
    value: T,
    parsed: String,
    warning: Option<String>,
) -> EnvReading<T> {
    EnvReading { name, raw: raw.map(printable), value, parsed, warning }
}

/// A number written in decimal digits and nothing else.
fn parse_decimal(digits: &[u8]) -> Option<u64> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0_u64, |value, &digit| {
        let digit = digit.is_ascii_digit().then(|| u64::from(digit - b'0'))?;
        value.checked_mul(10)?.checked_add(digit)
    })
}

fn normalise(raw: &[u8]) -> String {
    String::from_utf8_lossy(raw.trim_ascii()).to_ascii_lowercase()
}

/// The value for a message: control and non-ASCII bytes are escaped.
fn printable(raw: &[u8]) -> String {
    raw.escape_ascii().to_string()
}

#[cfg(test)]
mod tests;
