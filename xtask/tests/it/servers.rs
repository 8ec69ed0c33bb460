//! Servers as runners, from outside: a scripted server that is good, or bad in one way at a time.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use testkit::{Ran, Workspace};

use crate::XTASK;

/// What llama.cpp prints when the weights do not fit.
const LLAMA_OOM: &str = "\
ggml_backend_cuda_buffer_type_alloc_buffer: allocating 17008.00 MiB on device 0: cudaMalloc failed: out of memory
alloc_tensor_range: failed to allocate CUDA0 buffer of size 17834180608
llama_model_load: error loading model: unable to allocate CUDA0 buffer
llama_model_load_from_file_impl: failed to load model
srv    load_model: failed to load model, 'models/x.gguf'
main: exiting due to model loading error
";
/// What a worker of vLLM prints when a request does not fit, and goes on.
const TORCH_OOM: &str = "\
ERROR 07-03 10:21:04 [core.py:586] Traceback (most recent call last):
ERROR 07-03 10:21:04 [core.py:586]   File \"/usr/lib/python3/vllm/v1/engine/core.py\", line 577, in run_busy_loop
ERROR 07-03 10:21:04 [core.py:586] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.25 GiB is free.
";

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}

/// A workspace with a runner over the scripted server; `server` goes into its `[server]`.
fn workspace(script: &str, server: &str) -> Workspace {
    let workspace = Workspace::new(XTASK, &["m"]);
    workspace.write(
        "server.toml",
        format!("launch_log = \"launches.txt\"\nrequest_log = \"requests.txt\"\n{script}"),
    );
    workspace.write(
        "bench-configs/runners/served.toml",
        format!(
            "result = \"openai-stream\"\n\
             command = [{XTASK:?}, \"scripted-server\", \"--script\", \"server.toml\", \"--model\", \
             \"{{model}}\", \"--port\", \"{{port}}\", \"--concurrency\", \"{{concurrency}}\", \
             \"--context\", \"{{total_context_tokens}}\"]\n[server]\nready = \"/health\"\n{server}\n"
        ),
    );
    workspace
}

/// Runs one cell of 64 prompt tokens and 8 generated ones.
fn sweep(workspace: &Workspace, more: &[&str]) -> Ran {
    let base = ["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "out.csv"];
    workspace.write(
        "bench-configs/sweep/s.toml",
        "models = [\"m\"]\nlengths = [64]\nmax_tokens = 8\nwarmup_tokens = 2\ntimeout_s = 60\n\
         runner = \"served\"\n",
    );
    workspace.run(&[&base[..], more].concat())
}

/// The end of the only cell, as the journal has it.
fn cell_end(workspace: &Workspace) -> serde_json::Value {
    let journal = workspace.read_json_lines("out.csv.journal.jsonl");
    journal.into_iter().find(|entry| entry["event"] == "cell_end").expect("the cell has ended")
}

/// The requests that were served: tokens of the prompt, and those of them that a cache had.
fn requests(workspace: &Workspace) -> Vec<(u64, u64)> {
    let text = workspace.read("requests.txt");
    let numbers = |line: &str| line.split(' ').map(|n| n.parse().unwrap()).collect::<Vec<u64>>();
    let mut all: Vec<Vec<u64>> = text.lines().map(numbers).collect();
    all.sort();
    all.into_iter().map(|line| (line[1], line[2])).collect()
}

/// Runs a cell and looks at its class, `""` where it was measured, and at what is said of it.
#[track_caller]
fn ends(script: &str, server: &str, class: &str, said: &str) {
    let workspace = workspace(script, server);
    let limit = if script.contains("hang") { "3" } else { "60" };
    let ran = sweep(&workspace, &["--timeout", limit]);
    let row = workspace.read("out.csv").lines().nth(1).unwrap_or_default().to_owned();
    let token = row.rsplit(',').next().unwrap_or_default();
    let expected = if class.is_empty() { "64" } else { class };
    assert_eq!(token, expected, "{script}\n{}\n{}", ran.stderr, cell_end(&workspace));
    assert!(ran.stderr.contains(said), "no `{said}` in {}", ran.stderr);
    let recorded = workspace.read("benchmarks/.oom-record");
    assert_eq!(recorded.is_empty(), class != "SKIP:oom", "{script}: {recorded}");
}

#[test]
fn a_server_is_started_asked_and_ended() {
    let workspace = workspace("", "prompt = \"token-ids\"\nrequests = 4");
    let ran = sweep(&workspace, &[]).exits_with(0);
    // One warm-up, and as many as were asked for, each of exactly the length.
    assert_eq!(requests(&workspace), [(64, 0); 5]);
    let row = workspace.read("out.csv").lines().nth(1).unwrap().to_owned();
    assert!(row.starts_with("m,bench-configs/models/m.toml,64,8,"), "{row}");
    let end = cell_end(&workspace);
    assert_eq!(end["process"]["stopped"], "finished", "{end}");
    let serving = &end["report"]["serving"];
    assert_eq!(serving["warmups"], 1);
    assert_eq!(serving["first_ms"]["count"], 4);
    assert_eq!(serving["between_ms"]["count"], 4 * 7);
    assert_eq!(serving["requests"][3]["finish_reason"], "length");
    assert_eq!(end["report"]["timing"]["decode_step_ms"].as_array().unwrap().len(), 7);
    assert!(ran.stderr.contains("[done] m @ 64: prefill "), "{}", ran.stderr);
    // The command tells the port that it was started with.
    let launch = &workspace.read_json_lines("out.csv.journal.jsonl")[1];
    let command: Vec<&str> =
        launch["command"].as_array().unwrap().iter().filter_map(|word| word.as_str()).collect();
    let port = command.iter().skip_while(|word| **word != "--port").nth(1).unwrap();
    assert!(port.parse::<u16>().is_ok_and(|port| port > 0), "{command:?}");
    // 64 + 8 + 128 to spare.
    assert!(command.contains(&"200"), "{command:?}");
}

#[test]
fn prompts_of_text_have_exactly_the_length_whatever_the_server_adds() {
    let tokenize = "tokenize = { path = \"/tokenize\", field = \"content\" }";
    for (script, server, warmups) in [
        ("", "api = \"chat\"", 1),
        ("[[launch]]\ntemplate_tokens = 30", "api = \"chat\"", 2),
        ("[[launch]]\ntemplate_tokens = 1", "prompt = \"token-ids\"", 2),
        ("[[launch]]\ntokens_per_word = 2", "", 2),
        ("[[launch]]\ntokens_per_word = 2", tokenize, 1),
        ("[[launch]]\ntokens_per_word = 2\ntemplate_tokens = 6", tokenize, 2),
    ] {
        let workspace = workspace(script, server);
        let ran = sweep(&workspace, &[]);
        assert_eq!(ran.code, Some(0), "{script} {server}: {}", ran.stderr);
        let asked = requests(&workspace);
        assert_eq!(asked.len(), warmups + 3, "{script} {server}: {asked:?}");
        assert!(asked[warmups - 1..].iter().all(|(tokens, _)| *tokens == 64), "{asked:?}");
    }
    ends(
        "[[launch]]\ntemplate_tokens = 70",
        "",
        "FAIL:no_output",
        "no prompt of 64 tokens was found in 2 tries: the last one had 101, of 31 units",
    );
}

/// Sends a completion by hand, and gives what comes back.
fn ask_by_hand(port: u16, prompt: &str) -> String {
    let body = format!("{{\"prompt\": \"{prompt}\", \"max_tokens\": 1, \"stream\": true}}");
    let deadline = Instant::now() + Duration::from_secs(30);
    let mut connection = loop {
        match TcpStream::connect(("127.0.0.1", port)) {
            Ok(connection) => break connection,
            Err(error) => assert!(Instant::now() < deadline, "{error}"),
        }
    };
    let head = format!("POST /v1/completions HTTP/1.1\r\ncontent-length: {}\r\n\r\n", body.len());
    connection.write_all(format!("{head}{body}").as_bytes()).unwrap();
    let mut answer = String::new();
    connection.read_to_string(&mut answer).unwrap();
    answer
}

#[test]
fn a_prefix_cache_would_help_but_prompts_never_repeat() {
    let script = "[[launch]]\nprefix_cache = true\n";
    // The same prompt twice: the cache has all of it.
    let by_hand = workspace(script, "");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let args = ["scripted-server", "--script", "server.toml", "--model", "m", "--port"];
    let started = by_hand.command(&[&args[..], &[&port.to_string()]].concat()).start();
    let first = ask_by_hand(port, "a b c d e f");
    let second = ask_by_hand(port, "a b c d e f");
    let third = ask_by_hand(port, "a b c x e f");
    drop(started);
    assert!(first.contains("\"cached_tokens\":0"), "{first}");
    assert!(second.contains("\"cached_tokens\":6"), "{second}");
    assert!(third.contains("\"cached_tokens\":3"), "{third}");

    // A sweep asks many times, and the cache never has anything.
    for server in ["requests = 20", "requests = 20\nprompt = \"token-ids\""] {
        let swept = workspace(script, server);
        sweep(&swept, &[]).exits_with(0);
        assert_eq!(requests(&swept), [(64, 0); 21]);
    }

    // Where all prompts begin alike, whatever the client does, prefill is no prefill and stays empty.
    let template = workspace(&format!("{script}template_tokens = 30"), "api = \"chat\"");
    sweep(&template, &[]).exits_with(0);
    assert!(requests(&template)[1..].iter().all(|(_, cached)| *cached == 30));
    let row = template.read("out.csv").lines().nth(1).unwrap().to_owned();
    assert!(row.starts_with("m,bench-configs/models/m.toml,64,8,,,"), "{row}");
    let note = cell_end(&template)["report"]["serving"]["notes"][0].to_string();
    assert!(note.contains("30 of 64 prompt tokens from a cache"), "{note}");
}

#[test]
fn packets_and_pieces_may_be_cut_anywhere() {
    for reply in ["packet_bytes = 1", "packet_bytes = 7", "text = \"\u{1f600}\"\npacket_bytes = 3"]
    {
        let script = format!("[[launch]]\n[[launch.request]]\n{reply}");
        let workspace = workspace(&script, "");
        sweep(&workspace, &[]).exits_with(0);
        let end = cell_end(&workspace);
        assert_eq!(end["report"]["serving"]["between_ms"]["count"], 3 * 7, "{reply}");
        assert_eq!(end["report"]["output"]["tokens"], 8);
    }
    let workspace = workspace("[[launch]]\n[[launch.request]]\ntokens_per_piece = 4", "");
    sweep(&workspace, &[]).exits_with(0);
    let serving = cell_end(&workspace)["report"]["serving"].clone();
    assert_eq!(serving["between_ms"]["count"], 3);
    assert!(serving["notes"][0].as_str().unwrap().starts_with("8 tokens came in 2 pieces"));
}

#[test]
fn a_server_that_does_not_come_up_is_classified_like_any_child() {
    let launch =
        |stderr: &str, more: &str| format!("[[launch]]\nstderr = {}\n{more}", quoted(stderr));
    ends(
        &launch("error: unknown model architecture: 'x'\n", "exit = 1"),
        "",
        "FAIL:bench",
        "exit code 1: error: unknown model architecture: 'x'",
    );
    ends(&launch(LLAMA_OOM, "exit = 1"), "", "SKIP:oom", "the output says `llama_model_load: ");
    ends(&launch("", "signal = 9"), "", "SKIP:oom", "signal 9, not sent by the harness");
    ends(
        "[[launch]]\nunready = -1",
        "ready_within_s = 1",
        "FAIL:timeout",
        "the server was not ready within 1 s: `GET /health`: it answers with status 503",
    );
    ends(
        "[[launch]]\nmute = true",
        "ready_within_s = 1",
        "FAIL:timeout",
        "the server was not ready within 1 s: `GET /health`: timeout",
    );
    ends("[[launch]]\nunready = 3\ngrandchildren = 2", "", "", "[done]");
}

#[test]
fn a_request_that_fails_says_why() {
    let request = |more: &str| format!("[[launch]]\n[[launch.request]]\nnumber = 2\n{more}");
    for (reply, class, said) in [
        ("after = 3\nclose = true", "FAIL:bench", "the stream broke off after 3 pieces of text: "),
        (
            "after = 3\nraw = \"data: <html>\\n\\n\"",
            "FAIL:bench",
            "the stream holds `<html>`, which is not JSON",
        ),
        ("no_end = true", "FAIL:bench", "it ended without a `finish_reason`"),
        ("text = \"\"", "FAIL:no_output", "the answer holds no text"),
        ("after = 1\nhang = true", "FAIL:timeout", "over its time limit"),
        ("no_usage = true", "FAIL:no_output", "does not report the tokens of its prompts"),
        ("prompt_tokens = 17", "FAIL:wrong_work", "the prompt had 17 tokens instead of 64"),
        ("tokens = 5", "FAIL:wrong_work", "5 tokens were generated instead of 8"),
        (
            "status = 404\nbody = '{\"detail\":\"no such model\"}'",
            "FAIL:bench",
            "`POST /v1/completions` was answered with status 404: no such model",
        ),
        (
            "status = 500\nbody = '{\"error\":{\"message\":\"Internal Server Error\"}}'",
            "FAIL:bench",
            "status 500: Internal Server Error",
        ),
        (
            "after = 2\nthen_stderr = \"GGML_ASSERT(x) failed\\n\"\nexit = 134",
            "FAIL:bench",
            "exit code 134: GGML_ASSERT(x) failed",
        ),
    ] {
        ends(&request(reply), "", class, said);
    }
}

#[test]
fn memory_that_runs_out_in_a_request_counts_though_the_server_lives_on() {
    let reply = |more: &str| format!("[[launch]]\n[[launch.request]]\nnumber = 1\n{more}");
    let message = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of \
                   79.15 GiB of which 1.25 GiB is free.";
    let body = serde_json::json!({"error": {"code": 500, "message": message}}).to_string();
    let in_body = format!("status = 500\nbody = {}", quoted(&body));
    ends(&reply(&in_body), "", "SKIP:oom", "status 500: CUDA out of memory. Tried to allocate");
    let in_stream = format!("after = 2\nraw = {}", quoted(&format!("data: {body}\n\n")));
    ends(&reply(&in_stream), "", "SKIP:oom", "gave up after 2 pieces of text: CUDA out of memory");
    // The answer says nothing, the log does.
    let in_log =
        format!("stderr = {}\nstatus = 500\nbody = \"Internal Server Error\"", quoted(TORCH_OOM));
    ends(&reply(&in_log), "", "SKIP:oom", "status 500: Internal Server Error");
    ends(&reply("after = 1\nsignal = 9"), "", "SKIP:oom", "signal 9, not sent by the harness");
}

#[test]
fn another_cause_in_the_answer_outweighs_what_was_said_of_memory_before() {
    let warning = "warning: failed to allocate 349659.00 MiB of pinned memory: out of memory\n";
    let body =
        r#"{"error":{"code":400,"message":"the request exceeds the available context size"}}"#;
    let script = format!(
        "[[launch]]\nstderr = {}\n[[launch.request]]\nnumber = 1\nstatus = 400\nbody = {}",
        quoted(warning),
        quoted(body)
    );
    ends(&script, "", "FAIL:bench", "status 400: the request exceeds the available context size");
}

#[test]
fn streams_at_the_same_time_are_an_axis_with_launches_of_their_own() {
    let script = "[[launch]]\nconcurrency = 4\n[[launch.request]]\nnumber = 9\nstatus = 500\n\
                  body = '{\"message\":\"CUDA error: out of memory\"}'\n[[launch]]";
    let workspace = workspace(script, "requests = 3");
    workspace.write(
        "bench-configs/sweep/many.toml",
        "models = [\"m\"]\nlengths = [32, 64]\nconcurrency = [1, 4, 3]\nmax_tokens = 8\n\
         runner = \"served\"\n",
    );
    let many = ["sweep", "--config", "bench-configs/sweep/many.toml"];
    let list = workspace.run(&[&many[..], &["--list"]].concat()).exits_with(0);
    assert_eq!(list.stdout.lines().count(), 6, "{}", list.stdout);
    let faked = [&many[..], &["--fake-oom", "m+c3:64", "--output", "out.csv"]].concat();
    let ran = workspace.run(&faked).exits_with(0);
    // The tenth request to four streams fails, and what is longer is not launched.
    assert_eq!(workspace.read("launches.txt"), "m 1\nm 1\nm 4\nm 3\n");
    let journal = workspace.read_json_lines("out.csv.journal.jsonl");
    let ends: Vec<_> = journal.iter().filter(|entry| entry["event"] == "cell_end").collect();
    let told = |end: &serde_json::Value| {
        format!("{} {} {}", end["model"], end["prompt_target_len"], end["classification"])
    };
    let told: Vec<String> = ends.iter().map(|end| told(end).replace('"', "")).collect();
    let expected = [
        "m 32 null",
        "m 64 null",
        "m+c4 32 SKIP:oom",
        "m+c4 64 SKIP:oom_backstop",
        "m+c3 32 null",
        "m+c3 64 SKIP:oom",
    ];
    assert_eq!(told, expected, "{}", ran.stderr);
    let serving = &ends[4]["report"]["serving"];
    assert_eq!((&serving["concurrency"], &serving["first_ms"]["count"]), (&3.into(), &9.into()));
    assert!(serving["total_tok_s"].as_f64().unwrap() > 0.0);
    let record = workspace.read("benchmarks/.oom-record");
    let named = |line: usize, cell: &str| record.lines().nth(line).unwrap().starts_with(cell);
    assert!(named(0, "m+c4,32,") && named(1, "m+c3,64,"), "{record}");
    assert!(ran.stderr.contains("\nm+c3"), "{}", ran.stderr);
    // What was faked is tried again with as many streams as it was recorded with, and there is room.
    let confirm = ["oom-record", "confirm", "m+c3", "--runner", "served", "--cell-memory-limit-mb"];
    let ran = workspace.run(&[&confirm[..], &["8000"]].concat()).exits_with(0);
    assert!(workspace.read("launches.txt").ends_with("m 3\nm 3\n"), "{}", ran.stderr);
    assert!(!workspace.read("benchmarks/.oom-record").contains("m+c3"), "{}", ran.stderr);
    // What is resumed must have the same axis.
    workspace.edit("bench-configs/sweep/many.toml", "[1, 4, 3]", "[1, 4, 3, 2]");
    let ran = workspace.run(&["sweep", "--resume", "out.csv"]).exits_with(2);
    assert!(ran.stderr.contains("concurrency: [1, 4, 3] → [1, 4, 3, 2]"), "{}", ran.stderr);
    workspace.write_scripted_runner("plain", "report");
    let other = [&many[..], &["--runner", "plain", "--list"]].concat();
    let ran = workspace.run(&other).exits_with(2);
    assert!(ran.stderr.contains("`concurrency` needs a server"), "{}", ran.stderr);
}

#[test]
fn a_definition_that_cannot_work_is_refused() {
    let refused = |server: &str, said: &str| {
        let workspace = workspace("", server);
        let ran = sweep(&workspace, &[]).exits_with(2);
        assert!(ran.stderr.contains(said), "no `{said}` in {}", ran.stderr);
    };
    refused("path = \"v1\"", "`[server]`\n  caused by: `v1` is not a path: it must begin with `/`");
    refused("requests = 0", "`requests` = 0 leaves nothing to measure");
    refused("ready_within_s = -1", "`ready_within_s` = -1 is out of range");
    refused("prompt = \"token-ids\"\napi = \"chat\"", "the chat form takes text alone");
    refused("token_ids = [1, 2]", "`token_ids` is of no use where prompts are text");
    refused("prompt = \"token-ids\"\ntoken_ids = [5, 5]", "is not a range");
    refused("pormpt = \"text\"", "unknown key `pormpt`");
    let workspace = workspace("", "");
    let runner = "bench-configs/runners/served.toml";
    workspace.edit(runner, "{port}", "8080");
    let ran = sweep(&workspace, &[]).exits_with(2);
    assert!(ran.stderr.contains("nothing mentions {port}"), "{}", ran.stderr);
    workspace.write(runner, "result = \"report\"\ncommand = [\"x\", \"{model}\", \"{prompt_tokens}\", \"{report}\", \"{port}\"]\n");
    let ran = sweep(&workspace, &[]).exits_with(2);
    assert!(ran.stderr.contains("{port} has a value only where"), "{}", ran.stderr);
}

#[test]
fn an_interrupt_ends_the_server_as_well() {
    let script = "[[launch]]\ngrandchildren = 1\n[[launch.request]]\nafter = 1\nhang = true";
    let workspace = workspace(script, "");
    workspace.write(
        "bench-configs/sweep/s.toml",
        "models = [\"m\"]\nlengths = [64]\nmax_tokens = 8\nrunner = \"served\"\n",
    );
    let args = ["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "out.csv"];
    let child = workspace.command(&args).start();
    child.wait_until(|| !workspace.read("requests.txt").is_empty());
    let launch = &workspace.read_json_lines("out.csv.journal.jsonl")[1];
    let words = launch["command"].as_array().unwrap().iter().filter_map(|word| word.as_str());
    let port: u16 = words.skip_while(|word| *word != "--port").nth(1).unwrap().parse().unwrap();
    assert!(TcpStream::connect(("127.0.0.1", port)).is_ok());
    child.interrupt().exits_with(130);
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the server is still there");
    assert_eq!(cell_end(&workspace)["process"]["stopped"], "interrupt");
    assert!(workspace.read("benchmarks/.oom-record").is_empty());
}
