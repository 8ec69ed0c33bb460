//! What a sweep makes of what engines and drivers say when memory runs out, from outside. The rule over
//! many logs is held in `cell::evidence`.

use testkit::{Cell, Ran, Script, Workspace};

use crate::XTASK;

fn workspace(script: &Script) -> Workspace {
    let workspace = Workspace::new(XTASK, &["a", "b"]);
    workspace.write(
        "bench-configs/sweep/s.toml",
        "models = [\"a\"]\nlengths = [512, 2048]\nrunner = \"scripted\"\n",
    );
    workspace.write_scripted_runner("scripted", "report");
    workspace.script(script);
    workspace
}

fn sweep(workspace: &Workspace) -> Ran {
    workspace.run(&["sweep", "--config", "bench-configs/sweep/s.toml", "--output", "o.csv"])
}

fn ends(workspace: &Workspace) -> Vec<serde_json::Value> {
    let journal = workspace.read_json_lines("o.csv.journal.jsonl");
    journal.into_iter().filter(|entry| entry["event"] == "cell_end").collect()
}

/// The first cell says this and ends so: its class, the class of the longer one, and its evidence.
fn seen(cell: Cell) -> (String, String, serde_json::Value) {
    let workspace = workspace(&Script::new().cell(cell.len(512)));
    sweep(&workspace);
    let ends = ends(&workspace);
    let class =
        |index: usize| ends[index]["classification"].as_str().unwrap_or("measured").to_owned();
    let evidence = ends[0]["evidence"].clone();
    let recorded = workspace.path("benchmarks/.oom-record").exists();
    assert_eq!(recorded, class(0) == "SKIP:oom", "{ends:?}");
    (class(0), class(1), evidence)
}

#[test]
fn allocators_of_every_engine_are_known_and_the_longer_cell_is_not_launched() {
    let said = [
        ("ggml_vulkan: vk::Device::allocateMemory: ErrorOutOfDeviceMemory\n", "Vulkan"),
        ("error: 'hipErrorOutOfMemory'(2) at square.cpp:76\n", "HIP"),
        (
            "error: Insufficient Memory (00000008:kIOGPUCommandBufferCallbackErrorOutOfMemory)\n\
             ggml_metal_graph_compute: command buffer 3 failed with status 5\n",
            "Metal",
        ),
        (
            "RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`\n",
            "cuBLAS",
        ),
        (
            "ValueError: No available memory for the cache blocks. Try increasing \
             `gpu_memory_utilization` when initializing the engine.\n\
             RuntimeError: Engine core initialization failed. See root cause above.\n",
            "vLLM",
        ),
    ];
    for (stderr, api) in said {
        let (first, second, evidence) = seen(Cell::new().stderr(stderr).exit(1));
        assert_eq!(
            (first.as_str(), second.as_str()),
            ("SKIP:oom", "SKIP:oom_backstop"),
            "{stderr}"
        );
        assert_eq!(evidence["grade"], "allocator", "{stderr}");
        assert_eq!(evidence["api"], api, "{stderr}");
    }
    let vulkan = Cell::new().stderr(said[0].0).set("signal", 6);
    assert_eq!(seen(vulkan).0, "SKIP:oom");
}

#[test]
fn a_warning_that_the_program_lived_through_forbids_nothing() {
    let (first, second, evidence) = seen(
        Cell::new()
            .stderr(
                "llama: failed to allocate 349659 MiB of staging memory: out of memory\n\
                 load_tensors: offloading 5 repeating layers to GPU\n\
                 load_tensors: CPU model buffer size = 349659.17 MiB\n\
                 llama_model_load: error loading model: unsupported model architecture\n",
            )
            .exit(1),
    );
    assert_eq!((first.as_str(), second.as_str()), ("FAIL:bench", "measured"));
    assert!(evidence.get("line").is_none_or(serde_json::Value::is_null), "{evidence}");
    let survived = &evidence["survived"];
    assert!(survived["line"].as_str().unwrap().contains("349659 MiB"), "{evidence}");
    let why = "another error came after it: `llama_model_load: error loading model: unsupported model \
               architecture`";
    assert_eq!(survived["because"], why);
    let pinned = "ggml_cuda_host_malloc: failed to allocate 349659.17 MiB of pinned memory: out of \
                  memory\nunsupported model architecture\n";
    assert_eq!(seen(Cell::new().stderr(pinned).exit(1)).0, "FAIL:bench");
}

#[test]
fn a_signal_is_out_of_memory_and_where_memory_was_plentiful_the_line_says_so() {
    let workspace = workspace(&Script::new().cell(Cell::new().len(512).set("signal", 9)));
    let ran = sweep(&workspace);
    let end = &ends(&workspace)[0];
    assert_eq!(end["classification"], "SKIP:oom");
    let evidence = &end["evidence"];
    let (low, total) = (&evidence["available_low_bytes"], &evidence["memory_bytes"]);
    // Whether the machine that runs the tests has memory to spare is its own business.
    if low.as_u64().unwrap_or(0) > total.as_u64().unwrap_or(0) / 4 && evidence["grade"] == "signal"
    {
        let line = ran.stderr.lines().find(|line| line.contains("[oom ] a @ 512")).unwrap();
        for part in [
            "GiB of memory were free throughout",
            "cargo xtask oom-record confirm a",
            "cargo xtask oom-record prune --model a",
        ] {
            assert!(line.contains(part), "no `{part}` in {line}");
        }
    }
}

#[test]
fn a_runner_adds_its_own_patterns_and_what_to_ignore() {
    let script = Script::new()
        .cell(Cell::new().model("a").len(512).stderr("NPU budget blown\n").exit(1))
        .cell(
            Cell::new()
                .model("b")
                .len(512)
                .stderr("probe: out of memory\nscratch probe ended\n")
                .exit(1),
        );
    let workspace = workspace(&script);
    let path = "bench-configs/runners/scripted.toml";
    let keys = "oom_patterns = [\"npu budget blown\"]\noom_ignore = [\"probe: out of memory\"]\n";
    workspace.write(path, keys.to_owned() + &workspace.read(path));
    workspace.run(&[
        "sweep",
        "--config",
        "bench-configs/sweep/s.toml",
        "--models",
        "a b",
        "--output",
        "o.csv",
    ]);
    let classes: Vec<String> = ends(&workspace)
        .iter()
        .map(|end| end["classification"].as_str().unwrap_or("measured").to_owned())
        .collect();
    assert_eq!(classes, ["SKIP:oom", "SKIP:oom_backstop", "FAIL:bench", "measured"]);
    workspace.write(
        path,
        "oom_patterns = [\"x\"]\n".to_owned() + &workspace.read(path).replace(keys, ""),
    );
    let ran = workspace.run(&["sweep", "--config", "bench-configs/sweep/s.toml", "--list"]);
    let ran = ran.exits_with(2);
    assert!(
        ran.stderr.contains("`oom_patterns`: `x` is not a text of at least 4"),
        "{}",
        ran.stderr
    );
}
