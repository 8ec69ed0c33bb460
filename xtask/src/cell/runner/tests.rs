//! Tests of runners: their definitions, command lines and results.

use super::*;
use crate::base::diagnostic::render_error;

fn vars() -> CellVars {
    CellVars {
        model: "tiny".to_owned(),
        model_path: "models/a b/$(x).gguf".to_owned(),
        prompt_tokens: 512,
        max_tokens: 32,
        warmup_tokens: 4,
        threads: None,
        report: "target/cell/report.json".to_owned(),
        target_dir: "target".to_owned(),
        server: Default::default(),
    }
}

fn error_of(text: &str) -> String {
    render_error(&parse_runner("r", "r.toml", text).unwrap_err())
}

const MINIMAL: &str = r#"
result = "profile-text"
command = ["prog", "{model_path}", "{prompt_tokens}"]
"#;

#[test]
fn a_runner_whose_result_is_its_log_needs_neither_model_nor_prompt() {
    let text =
        |result: &str| format!("result = {result:?}\ncommand = [\"train\", \"{{max_tokens}}\"]");
    let runner = parse_runner("r", "r.toml", &text("log")).unwrap();
    assert_eq!(runner.result, ResultFormat::Log);
    assert!(error_of(&text("profile-text")).contains("nothing mentions {model_path} or {model}"));
}

#[test]
fn a_command_line_is_rendered_argument_by_argument_without_a_shell() {
    let runner = parse_runner(
        "r",
        "r.toml",
        r#"
            result = "report"
            command = [
              "{target_dir}/release/prog", "-m", "{model_path}", "--len={prompt_tokens}/{max_tokens}",
              ["--threads", "{threads}"], "{{literal}}", "*.txt", "{report}", "", "{warmup_tokens}",
            ]
            env = { MODEL = "{model}", THREADS = "{threads}", PLAIN = "1" }
            build = { package = "engine", bin = "prog" }
        "#,
    )
    .unwrap();
    let expected = |threads: &[&'static str]| {
        let mut all = vec!["target/release/prog", "-m", "models/a b/$(x).gguf", "--len=512/32"];
        all.extend(threads);
        all.extend(["{literal}", "*.txt", "target/cell/report.json", "", "4"]);
        all
    };
    assert_eq!(render_command(&runner, &vars()), expected(&[]));
    let threaded = CellVars { threads: Some(2), ..vars() };
    assert_eq!(render_command(&runner, &threaded), expected(&["--threads", "2"]));
    let env = render_env(&runner, &vars());
    assert_eq!(
        env.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect::<Vec<_>>(),
        [("MODEL", "tiny"), ("PLAIN", "1")]
    );
    assert_eq!(render_env(&runner, &threaded).get("THREADS").map(String::as_str), Some("2"));
    assert_eq!(runner.build, Some(Build { package: "engine".into(), bin: "prog".into() }));
    assert_eq!((runner.result, runner.models), (ResultFormat::Report, ModelNeed::Any));
}

#[test]
fn a_value_is_never_expanded_again() {
    let runner = parse_runner("r", "r.toml", MINIMAL).unwrap();
    let vars = CellVars { model_path: "{prompt_tokens}".to_owned(), ..vars() };
    assert_eq!(render_command(&runner, &vars), ["prog", "{prompt_tokens}", "512"]);
}

#[test]
fn an_unknown_placeholder_is_an_error_that_names_the_known_ones() {
    let text = MINIMAL.replace("{prompt_tokens}", "{prompt_token}");
    assert_eq!(
        error_of(&text),
        "error: runner `r` in r.toml\n  caused by: `command`, element 3\n  caused by: unknown \
         placeholder {prompt_token}; expected one of {model}, {model_path}, {prompt_tokens}, \
         {max_tokens}, {warmup_tokens}, {threads}, {report}, {target_dir}, {port}, {concurrency}, \
         {context_tokens}, {total_context_tokens}\nhint: did you mean {prompt_tokens}?"
    );
    let error = error_of(&MINIMAL.replace("result", "env = { A = \"{x}\" }\nresult"));
    assert!(
        error.contains("`env`, variable `A`\n  caused by: unknown placeholder {x};"),
        "{error}"
    );
}

#[test]
fn a_runner_may_have_placeholders_of_its_own_that_variants_set() {
    let text = MINIMAL
        .replace("result", "placeholders = { kv = \"f16\" }\nenv = { KV = \"<{kv}>\" }\nresult");
    let text = text
        .replace("\"{prompt_tokens}\"", "\"{prompt_tokens}\", \"{kv}\", [\"-t\", \"{threads}\"]");
    let runner = parse_runner("r", "r.toml", &text).unwrap();
    let rendered = |set: &[(&str, &str)]| {
        let set = set.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let runner = runner.with_set(&set).map_err(|error| format!("{error:#}"))?;
        let env = render_env(&runner, &vars()).remove("KV").unwrap();
        Ok::<_, String>((render_command(&runner, &vars())[2..].join(" "), env))
    };
    let expected = |command: &str, env: &str| Ok((command.to_owned(), env.to_owned()));
    assert_eq!(rendered(&[]), expected("512 f16", "<f16>"));
    assert_eq!(rendered(&[("kv", "{x}"), ("threads", "2")]), expected("512 {x} -t 2", "<{x}>"));
    let error = rendered(&[("kv_type", "q8_0")]).unwrap_err();
    assert!(error.starts_with("runner `r` has no placeholder `kv_type` to set"), "{error}");
    let error = rendered(&[("warmup_tokens", "0")]).unwrap_err();
    assert_eq!(error, "nothing in runner `r` mentions {warmup_tokens}: to set it changes nothing");
    let error = error_of(&text.replace("{kv}>", "{kvv}>"));
    assert!(error.contains("did you mean {kv}?"), "{error}");
    for taken in ["model", "", "KV"] {
        let text = text.replace("{ kv =", &format!("{{ \"{taken}\" ="));
        assert!(error_of(&text).contains("is taken, or no name"), "{taken}");
    }
}

#[test]
fn lone_braces_are_errors() {
    for lone in ["{", "a}b", "{model", "}{"] {
        let error = error_of(&MINIMAL.replace("prog", &format!("prog\", \"{lone}")));
        assert!(error.contains(&format!("`{lone}` has an unmatched `")), "{error}");
    }
}

#[test]
fn a_command_that_cannot_measure_a_cell_is_refused() {
    let cases = [
        (
            r#"result = "profile-text"
            command = []"#,
            "`command` must begin with the program",
        ),
        (
            r#"result = "profile-text"
            command = [["prog"], "{model}", "{prompt_tokens}"]"#,
            "`command` must begin",
        ),
        (
            r#"result = "profile-text"
            command = ["", "{model}", "{prompt_tokens}"]"#,
            "`command` must begin",
        ),
        (
            r#"result = "profile-text"
            command = ["prog", "{prompt_tokens}"]"#,
            "nothing mentions {model_path} or {model}",
        ),
        (
            r#"result = "profile-text"
            command = ["prog", "{model}"]"#,
            "nothing mentions {prompt_tokens}",
        ),
        (
            r#"result = "report"
            command = ["prog", "{model}", "{prompt_tokens}"]"#,
            "nothing mentions {report}",
        ),
        (
            r#"result = "profile-text"
            env = { "A=B" = "" }
            command = ["prog", "{model}", "{prompt_tokens}"]"#,
            "`env`: `A=B` is not a variable name",
        ),
    ];
    for (text, expected) in cases {
        let error = error_of(text);
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn errors_of_the_definition_name_line_and_nearest_key() {
    assert_eq!(
        error_of("comand = []\nresult = \"report\"\n"),
        "error: r.toml:1: unknown key `comand`; expected one of `summary`, `result`, `models`, `command`, \
         `env`, `placeholders`, `build`, `counts_tokens`, `stops_at_end_of_sequence`, `oom_patterns`, \
         `oom_ignore`, `pins`, `writes`, `server`\nhint: did you mean `command`?"
    );
    assert_eq!(
        error_of("result = \"llama-bench\"\ncommand = []\n"),
        "error: r.toml:1: unknown value `llama-bench`; expected one of `report`, `profile-text`, \
         `llama-bench-json`, `openai-stream`, `log`\nhint: did you mean `llama-bench-json`?"
    );
    let error = error_of("result = \"report\"\ncommand = [1]\n");
    assert!(error.contains("r.toml:2: a string, or an array of strings"), "{error}");
}

#[test]
fn a_runner_says_which_models_it_can_load() {
    let runner = |models| Runner { models, ..parse_runner("r", "r.toml", MINIMAL).unwrap() };
    for kind in [ModelKind::Synthetic, ModelKind::Gguf, ModelKind::Directory, ModelKind::Missing] {
        assert_eq!(check_model(&runner(ModelNeed::Any), kind), Ok(()));
    }
    let gguf = runner(ModelNeed::GgufFile);
    assert_eq!(check_model(&gguf, ModelKind::Gguf), Ok(()));
    assert_eq!(check_model(&gguf, ModelKind::Missing), Ok(()));
    assert_eq!(
        check_model(&gguf, ModelKind::Synthetic),
        Err("runner `r` needs one GGUF file, but this is a synthetic geometry".to_owned())
    );
    assert!(check_model(&gguf, ModelKind::Directory).is_err());
    let weights = runner(ModelNeed::Weights);
    assert_eq!(check_model(&weights, ModelKind::Directory), Ok(()));
    assert!(check_model(&weights, ModelKind::Synthetic).is_err());
}

/// The definitions that are shipped, read at compile time since this module reads no files.
const SHIPPED: &[(&str, &str)] = &[
    ("decode-bench", include_str!("../../../../bench-configs/runners/decode-bench.toml")),
    ("llama-bench", include_str!("../../../../bench-configs/runners/llama-bench.toml")),
    (
        "llama-bench-decode",
        include_str!("../../../../bench-configs/runners/llama-bench-decode.toml"),
    ),
    ("llama-server", include_str!("../../../../bench-configs/runners/llama-server.toml")),
    ("mistralrs", include_str!("../../../../bench-configs/runners/mistralrs.toml")),
    ("mlx-lm-server", include_str!("../../../../bench-configs/runners/mlx-lm-server.toml")),
    ("sglang", include_str!("../../../../bench-configs/runners/sglang.toml")),
    ("transformers", include_str!("../../../../bench-configs/runners/transformers.toml")),
    ("vllm", include_str!("../../../../bench-configs/runners/vllm.toml")),
    ("profile-text", include_str!("../../../../bench-configs/runners/profile-text.toml")),
];

fn shipped(name: &str) -> Runner {
    let (_, text) = SHIPPED.iter().find(|(known, _)| *known == name).unwrap();
    parse_runner(name, &format!("bench-configs/runners/{name}.toml"), text).unwrap()
}

#[test]
fn the_shipped_runners_are_sound_and_say_what_they_are() {
    for (name, _) in SHIPPED {
        assert!(!shipped(name).summary.is_empty(), "{name}");
    }
    assert_eq!(
        render_command(&shipped("decode-bench"), &CellVars { threads: Some(2), ..vars() }),
        [
            "target/release/decode-bench",
            "--model",
            "models/a b/$(x).gguf",
            "--prompt-tokens",
            "512",
            "--max-tokens",
            "32",
            "--warmup-tokens",
            "4",
            "--threads",
            "2",
            "--report",
            "target/cell/report.json",
        ]
    );
    let server = ServerVars { port: Some(4242), concurrency: 4 };
    assert_eq!(
        render_command(&shipped("llama-server"), &CellVars { server, ..vars() }).join(" "),
        // 512 + 32 + 128 to spare, four times.
        "llama-server --model models/a b/$(x).gguf --host 127.0.0.1 --port 4242 --parallel 4 \
         --ctx-size 2688"
    );
    assert_eq!(
        render_command(&shipped("llama-bench"), &vars()).join(" "),
        "llama-bench --model models/a b/$(x).gguf --n-prompt 512 --n-gen 32 --n-depth 0,512 \
         --repetitions 1 --output jsonl"
    );
}
