//! The vocabulary by which a line is told: words of errors, words that name no cause, words of going on.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexBuilder, RegexSet, RegexSetBuilder};

/// Builds a regex that is part of the program. Its letters are ASCII: the tables of Unicode would take
/// longer to build than any log to read.
pub(super) fn regex(text: &str) -> Regex {
    RegexBuilder::new(text).unicode(false).build().expect("a fixed regex builds")
}

/// Words that an error is stated with.
static ERROR: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)
        (?i:\b(?:error|fatal|panic(?:ked)?|exception|assert(?:ion)?|failed|failure|cannot|can't|
            could\ not|couldn't|unable|unsupported|not\ supported|invalid|illegal|unknown|denied|
            refused|not\ found|no\ such|mismatch(?:ed)?|corrupt(?:ed)?|undefined|unrecognized|
            unrecognised|out\ of\ range|timed\ out|not\ within)\b)
        | \w(?:Error|Exception)\b | GGML_ASSERT
        | ^(?:Key|File|System|Keyboard)(?:Interrupt|Exit)\b",
    )
});

/// Words that make a statement an error by themselves: a plain `failed` does not.
static STRONG: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)
        (?i:\b(?:error|fatal|panic(?:ked)?|exception|terminate\ called|abort(?:ed|ing)?)\b)
        | \w(?:Error|Exception)\b",
    )
});

/// Words that say what is wrong, even where nothing marks the line as an error.
static SPECIFIC: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi)\b(?:unsupported|not\ supported|invalid|illegal|unknown|denied|refused|not\ found|no\ such|
            mismatch(?:ed)?|corrupt(?:ed)?|undefined|unrecogni[sz]ed|out\ of\ range|timed\ out|
            not\ within|missing|duplicate)\b",
    )
});

/// Errors that are spoken of, not stated.
static ERROR_STREAM: LazyLock<Regex> = LazyLock::new(|| {
    regex(r"(?i)\bstandard error\b|\berror (?:output|log|message|handler|rate)s?\b")
});

/// How a process that crashed is spoken of: by itself, its library or its shell.
static CRASH: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?x)(?i:segmentation\ fault|core\ dumped|double\ free|corrupted\ size|munmap_chunk|
            free\(\):\ invalid|terminate\ called|zsh:\ abort|fatal\ python\ error:\ aborted
            |GGML_ASSERT|\bassertion\b)|^\s*(?:Aborted|Killed|Terminated|Bus\ error)\b|\bSIG[A-Z]{3,4}\b",
    )
});

/// The loss of a process that ended first.
static FALLOUT: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi)\bpeers?\b|remote\ process|connection\ (?:was\ )?(?:closed|reset|lost|refused)|
            broken\ ?pipe|EOFError|connectionreset|tcpstore|\bsocket|watchdog|heartbeat|collective|
            DistBackendError|process\ ?group|actor\w*\ ?died|worker\w*\ (?:has\ )?(?:died|crashed)|
            exception\ in\ thread|stopiteration|cancellederror|keyboardinterrupt",
    )
});

/// The program says that it goes on.
static GOES_ON: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi)\b(?:retrying|re-trying|will\ retry|trying\ again|try\ again\ with|falling\ back|fall\ back|
            falls\ back|fallback|recovered|continuing|carrying\ on|succeeded|success(?:ful|fully)?|
            skipping|ignoring|using\ \w+\ instead|lowering|decreasing|reducing\ (?:the\ )?batch|
            resuming|restarting|restarted)\b",
    )
});

/// Speaks of what could happen, or of what would help.
static ADVICE: LazyLock<RegexSet> = LazyLock::new(|| {
    RegexSetBuilder::new([
        r"(?i)^(?:hint|note|tip|usage|help|info|see|try|please|consider|set|use|check|refer|possible|make sure|or|and|for)\b",
        r"^\d+[.)] ",
        r"(?i)^if (?:you|the|this|reserved)\b",
        r"(?i)\b(?:consider|please|make sure|see also)\b",
    ])
    .unicode(false)
    .build()
    .expect("fixed regexes build")
});

/// What makes a mention of a shortage a mere possibility, when it stands in front of it.
static HYPOTHETICAL: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi)\b(?:avoid(?:s|ing)?|prevent(?:s|ing)?|if|may|might|could|would|in\ case\ of|unless|
            reduces?|risk(?:s|ing)?|handl(?:e|es|er|ing)|catch(?:es|ing)?|whether|against|explain|
            meaning\ of|what\ is|likely|until|instead\ of)\b[^.;:]*$",
    )
});

/// Words of closing down, and of what is left at the end.
static TEARDOWN: LazyLock<Regex> = LazyLock::new(|| {
    regex(
        r"(?xi)\b(?:shut(?:ting)?[\ -]?down|exit(?:s|ed|ing)?|clean(?:ing|ed|s)?(?:[\ -]?up)?|stopp(?:ed|ing)|
            terminat(?:e|ed|ing)|kill(?:ed|ing)?|destroy(?:ed|ing)?|leaked|releas(?:ed|ing)|
            freed|freeing|clos(?:ed|ing)|finaliz\w*|finished\ with|atexit|cancel(?:l?ed|l?ing)|
            sending\ process|closing\ signal|interrupted|bye|traceback|backtrace|summary|statistics)\b",
    )
});

/// Words that say nothing about why: an error made of them alone repeats that something failed.
const GENERIC: &str = "
a an the of to for from in on at by with within and or is was were are be been being has have had it its
this that these those which when while during because due not no any all more than too see above below
root cause causes log logs detail details check run running rerun out up off try trying reduce reducing
lower lowering smaller larger fewer increase increasing decrease decreasing layers layer n ngl b batch
ubatch size sizes context ctx length max min seq len sequence model models weight weights tensor tensors
load loads loaded loading loader file files path create creating created init initialize initialise
initialized initializing initialization initialisation setup start starts started starting startup launch
launched launching launcher stop stopped exit exits exited exiting exitcode code codes status return
returned returning returns ret rc value values result error errors err exception exceptions fatal failed
failing failure failures fail fails critical unable cannot can could couldn would will t s re llm not main
server srv client slot engine core enginecore engines worker workers proc procs process processes processing
child children subprocess executor execution execute executing executed runner runners runtime rank ranks
local global node nodes host hosts pid pids tid thread threads scheduler agent signal signals sig sigabrt sigquit sigkill
sigterm sigsegv abort aborted aborting terminated terminate terminating termination terminates called
throwing thrown instance uncaught unhandled std bad core dumped dump killed died dead gone unexpectedly
unexpected received receive usually means mean hit issue issues problem encountered occurred stack trace
traceback please again still before after while also then so if you your we running become ready becoming
memory memories mem allocate allocates allocated allocating allocation allocations allocator alloc malloc
buffer buffers bytes byte kb mb gb kib mib gib k m g vram ram swap device devices gpu gpus cuda hip
rocm metal vulkan sycl mps cpu xpu backend backends driver compute computing graph graphs command commands
kernel kernels kv cache caches cached pool pools space spaces insufficient enough require requires required
need needs needed available free used use using usage in-use request requests requested capture captured
capturing decode decoding decoded encode eval evaluate evaluating prefill prompt prompts token tokens
generate generated generating generation inference forward step steps llama llamacpp api apiserver async
asyncllm output outputs handler runtimeerror valueerror validationerror validation oserror systemexit
system internal childfailederror enginedeaderror processexitedexception processraisedexception raytaskerror
taskerror workerprocerror resulterror calledprocesserror nccl version call function library last first
stream reserve reserved reserving params parameters param free fit fitting new old one two cur current
total limit limits exceeded exceed exceeds op ops operation operations multiply mul mat matmul single
line caught here catch exitcode(s) attempt attempts everything something anything nothing shard shards self attention
distbackenderror disterror slurmstepd srun cancelled canceled event events loop job jobs task tasks reason
";

static GENERIC_WORDS: LazyLock<std::collections::HashSet<&'static str>> =
    LazyLock::new(|| GENERIC.split_whitespace().collect());

/// Quoted text, paths and addresses: names, not words.
static NAMES: LazyLock<Regex> = LazyLock::new(|| {
    regex(r#"'[^']*'|"[^"]*"|`[^`]*`|\{[^}]*\}|\S*[/\\]\S*|\S*::\S*|\S*\w\(\)\S*|\S*[0-9_]\S*"#)
});

/// A part of a name in camel case.
static HUMP: LazyLock<Regex> = LazyLock::new(|| regex(r"[A-Z]+(?:[^A-Z]+|$)|^[^A-Z]+"));

/// Expressions of a program's source.
static CODE: LazyLock<Regex> =
    LazyLock::new(|| regex(r"\w*\([^()]*(?:->|\*|;|==|<=|>=|&)[^()]*\)"));

/// The modules in front of a name.
static MODULES: LazyLock<Regex> = LazyLock::new(|| regex(r"\b(?:[a-z_]\w*\.)+\b"));

pub(super) fn states_error(body: &str) -> bool {
    ERROR.is_match(body.as_bytes())
}

pub(super) fn states_error_strongly(body: &str) -> bool {
    STRONG.is_match(body.as_bytes())
}

/// Whether an error is stated in so many words, or in words that say what is wrong.
pub(super) fn states_what_is_wrong(body: &str) -> bool {
    let body = ERROR_STREAM.replace_all(body.as_bytes(), &b" "[..]);
    STRONG.is_match(&body) || SPECIFIC.is_match(&body)
}

pub(super) fn is_crash(body: &str) -> bool {
    CRASH.is_match(body.as_bytes())
}

pub(super) fn is_fallout(body: &str) -> bool {
    FALLOUT.is_match(body.as_bytes())
}

/// Whether the program says that it goes on, and not that this failed.
pub(super) fn goes_on(body: &str) -> bool {
    GOES_ON.find(body.as_bytes()).is_some_and(|found| {
        let rest = body[found.end()..].to_ascii_lowercase();
        let before = body[..found.start()].trim_end().to_ascii_lowercase();
        let denied = ["not", "no", "un", "without"].iter().any(|word| {
            before.strip_suffix(word).is_some_and(|rest| !rest.ends_with(char::is_alphanumeric))
        });
        !denied && !rest.contains("fail") && !rest.contains("impossible")
    })
}

pub(super) fn is_advice(body: &str) -> bool {
    ADVICE.is_match(body.as_bytes())
}

pub(super) fn is_hypothetical(before: &str) -> bool {
    HYPOTHETICAL.is_match(before.as_bytes())
}

pub(super) fn is_teardown(body: &str) -> bool {
    TEARDOWN.is_match(body.as_bytes())
}

/// Whether a statement of an error names no cause of its own.
pub(super) fn names_no_cause(body: &str) -> bool {
    let mut short = MODULES.replace_all(body.as_bytes(), &b""[..]).into_owned();
    while let Some(range) = CODE.find(&short).map(|found| found.range()) {
        short.splice(range, *b" ");
    }
    let plain = NAMES.replace_all(&short, &b" "[..]);
    String::from_utf8_lossy(&plain)
        .split(|c: char| !c.is_alphabetic())
        .filter(|word| !word.is_empty())
        .all(is_generic)
}

/// Whether a word, or each part of a name in camel case, says nothing about why.
fn is_generic(word: &str) -> bool {
    if GENERIC_WORDS.contains(word.to_ascii_lowercase().as_str()) {
        return true;
    }
    let (count, generic) =
        HUMP.find_iter(word.as_bytes()).fold((0, 0), |(count, generic), hump| {
            let hump = String::from_utf8_lossy(hump.as_bytes()).to_ascii_lowercase();
            (count + 1, generic + usize::from(GENERIC_WORDS.contains(hump.as_str())))
        });
    count > 1 && count == generic
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_that_only_repeat_that_something_failed_name_no_cause() {
        for line in [
            "llama_model_load_from_file_impl: failed to load model",
            "main: error: unable to load model",
            "RuntimeError: Engine core initialization failed. See root cause above. Failed core proc(s): {}",
            "common_init_from_params: failed to load model '/models/odd name.gguf'",
            "main: error: failed to create context with model 'x.gguf'",
            "ggml_metal_graph_compute: command buffer 3 failed with status 5",
            "srv  llama_server: exiting due to model loading error",
            "ValueError: Failed to load model from file: /models/x.gguf",
            "torch.distributed.DistBackendError: NCCL error in: ../NCCLUtils.hpp:317, unhandled cuda error, NCCL version 2.21.5",
            "Error: llama runner process has terminated: exit status 2",
            "graph_reserve: failed to allocate compute buffers",
        ] {
            assert!(names_no_cause(line), "{line}");
        }
    }

    #[test]
    fn errors_that_name_something_do() {
        for line in [
            "llama_model_load: error loading model: unknown model architecture: 'gemma4'",
            "unsupported model architecture",
            "KeyError: 'rope_scaling'",
            "FileNotFoundError: [Errno 2] No such file or directory: 'x'",
            "ValueError: tokenizer is missing",
            "CUDA error: an illegal memory access was encountered",
            "error loading model: tensor 'blk.0' is not within the file bounds",
            "NCCL error: invalid usage",
        ] {
            assert!(!names_no_cause(line), "{line}");
        }
    }

    #[test]
    fn going_on_is_not_failing_to() {
        assert!(goes_on("compute buffer allocation failed, retrying without pipeline parallelism"));
        assert!(goes_on("falling back to pageable memory"));
        assert!(!goes_on("retrying failed"));
        assert!(!goes_on("not continuing"));
        assert!(!goes_on("giving up"));
    }
}
