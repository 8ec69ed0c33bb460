//! Tests of looking models up, over folders made for them.

use super::*;

/// A workspace with two geometries, three local models and a folder that is not a model.
fn workspace() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path();
    let write = |path: &str, bytes: usize| {
        let path = root.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, vec![0; bytes]).unwrap();
    };
    write("bench-configs/models/tiny.toml", 1);
    write("bench-configs/models/smollm2-135m.toml", 1);
    write("models/smollm2-135m/SmolLM2.Q4_1.gguf", 7);
    write("models/llama-8b/model-00001-of-00002.safetensors", 10);
    write("models/llama-8b/model-00002-of-00002.safetensors", 20);
    write("models/llama-8b/config.json", 1000);
    write("models/two/a.gguf", 1);
    write("models/two/b.gguf", 2);
    write("models/notes/readme.txt", 1);
    write("models/.fetch/part.gguf", 99);
    dir
}

fn resolve(root: &Path, words: &[&str]) -> Vec<ResolvedModel> {
    let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
    resolve_models(root, &words).unwrap()
}

fn resolve_one(root: &Path, word: &str) -> ResolvedModel {
    let mut models = resolve(root, &[word]);
    assert_eq!(models.len(), 1, "{models:?}");
    models.remove(0)
}

#[test]
fn a_synthetic_name_is_its_geometry() {
    let dir = workspace();
    let model = resolve_one(dir.path(), "tiny");
    assert_eq!((model.name.as_str(), model.kind), ("tiny", ModelKind::Synthetic));
    assert_eq!(model.path, "bench-configs/models/tiny.toml");
    assert_eq!((model.weight_bytes, model.note), (None, None));
}

#[test]
fn the_size_of_a_geometry_is_known_before_it_is_generated() {
    let dir = workspace();
    let text = "architecture = \"llama\"\nlayers = 1\nhidden = 256\nheads = 4\nkv_heads = 4\nffn = \
                256\nvocab = 256\nquantisation = \"f16\"\ncontext = 64\nseed = 1\n";
    std::fs::write(dir.path().join("bench-configs/models/tiny.toml"), text).unwrap();
    assert_eq!(resolve_one(dir.path(), "tiny").weight_bytes, Some(1_182_720));
}

#[test]
fn a_folder_with_one_gguf_file_is_that_file() {
    let dir = workspace();
    std::fs::remove_file(dir.path().join("bench-configs/models/smollm2-135m.toml")).unwrap();
    let model = resolve_one(dir.path(), "smollm2-135m");
    assert_eq!((model.name.as_str(), model.kind), ("smollm2-135m", ModelKind::Gguf));
    assert_eq!(model.path, "models/smollm2-135m/SmolLM2.Q4_1.gguf");
    assert_eq!(model.weight_bytes, Some(7));
}

#[test]
fn a_folder_of_several_files_stays_a_folder_and_counts_weights_alone() {
    let dir = workspace();
    let model = resolve_one(dir.path(), "llama-8b");
    assert_eq!((model.path.as_str(), model.kind), ("models/llama-8b", ModelKind::Directory));
    assert_eq!(model.weight_bytes, Some(30));
    let model = resolve_one(dir.path(), "two");
    assert_eq!((model.path.as_str(), model.weight_bytes), ("models/two", Some(3)));
}

#[test]
fn where_both_exist_the_bare_name_is_synthetic_and_the_path_has_a_name_of_its_own() {
    let dir = workspace();
    let synthetic = resolve_one(dir.path(), "smollm2-135m");
    assert_eq!(synthetic.kind, ModelKind::Synthetic);
    assert_eq!(
        synthetic.note.as_deref(),
        Some(
            "`smollm2-135m` is the synthetic geometry; the local model of that name is \
             `models/smollm2-135m`"
        )
    );
    let local = resolve_one(dir.path(), "models/smollm2-135m");
    assert_eq!((local.name.as_str(), local.kind), ("models/smollm2-135m", ModelKind::Gguf));
}

#[test]
fn paths_may_be_written_in_any_way_and_name_the_same_model() {
    let dir = workspace();
    let absolute = dir.path().join("models/llama-8b/");
    for word in ["llama-8b", "models/llama-8b", "./models/llama-8b/", absolute.to_str().unwrap()] {
        let model = resolve_one(dir.path(), word);
        assert_eq!((model.name.as_str(), model.path.as_str()), ("llama-8b", "models/llama-8b"));
    }
    let file = resolve_one(dir.path(), "models/two/b.gguf");
    assert_eq!((file.name.as_str(), file.kind, file.weight_bytes), ("b", ModelKind::Gguf, Some(2)));
    let geometry = resolve_one(dir.path(), "./bench-configs/models/tiny.toml");
    assert_eq!((geometry.name.as_str(), geometry.kind), ("tiny", ModelKind::Synthetic));
}

#[test]
fn a_path_outside_the_workspace_is_not_shown_in_tracked_files() {
    let dir = workspace();
    let outside = tempfile::tempdir().unwrap();
    std::fs::write(outside.path().join("big.gguf"), "12345").unwrap();
    let word = outside.path().join("big.gguf");
    let model = resolve_one(dir.path(), word.to_str().unwrap());
    assert_eq!(model.name, "big");
    assert_eq!(Path::new(&model.path), word);
    assert_eq!(model.tracked_path, "external:big.gguf");
}

#[test]
fn a_link_to_a_model_store_is_followed() {
    let dir = workspace();
    let store = tempfile::tempdir().unwrap();
    std::fs::create_dir(store.path().join("qwen")).unwrap();
    std::fs::write(store.path().join("qwen/q.gguf"), "123").unwrap();
    std::fs::remove_dir_all(dir.path().join("models")).unwrap();
    std::os::unix::fs::symlink(store.path(), dir.path().join("models")).unwrap();
    let model = resolve_one(dir.path(), "qwen");
    assert_eq!((model.path.as_str(), model.weight_bytes), ("models/qwen/q.gguf", Some(3)));
}

#[test]
fn a_glob_stands_for_every_model_that_it_matches_in_order() {
    let dir = workspace();
    let names = |word| -> Vec<String> {
        resolve(dir.path(), &[word]).into_iter().map(|model| model.name).collect()
    };
    assert_eq!(names("models/*"), ["llama-8b", "models/smollm2-135m", "two"]);
    assert_eq!(names("models/t?o"), ["two"]);
    assert_eq!(names("bench-configs/models/*.toml"), ["smollm2-135m", "tiny"]);
    let nothing = resolve_one(dir.path(), "models/zz*");
    assert_eq!((nothing.name.as_str(), nothing.kind), ("models/zz*", ModelKind::Missing));
    assert_eq!(nothing.note.as_deref(), Some("no model matches `models/zz*`"));
}

#[test]
fn a_word_may_be_a_folder_whose_name_looks_like_a_pattern() {
    let dir = workspace();
    std::fs::create_dir(dir.path().join("models/a[1]")).unwrap();
    std::fs::write(dir.path().join("models/a[1]/a.gguf"), "1").unwrap();
    assert_eq!(resolve_one(dir.path(), "models/a[1]").kind, ModelKind::Gguf);
}

#[test]
fn what_is_missing_is_a_value_that_says_why() {
    let dir = workspace();
    let model = resolve_one(dir.path(), "lama-8b");
    assert_eq!((model.name.as_str(), model.kind), ("lama-8b", ModelKind::Missing));
    assert_eq!(model.path, "models/lama-8b");
    assert_eq!(
        model.note.as_deref(),
        Some(
            "`lama-8b` is neither a geometry nor a folder under `models/` nor a path; did you mean \
             `llama-8b`?"
        )
    );
    std::os::unix::fs::symlink("nowhere", dir.path().join("models/gone")).unwrap();
    let gone = resolve_one(dir.path(), "models/gone");
    assert_eq!(gone.kind, ModelKind::Missing);

    std::fs::remove_dir_all(dir.path().join("models")).unwrap();
    std::os::unix::fs::symlink("nowhere", dir.path().join("models")).unwrap();
    let model = resolve_one(dir.path(), "llama-8b");
    assert_eq!(model.kind, ModelKind::Missing);
    assert_eq!(model.note.as_deref(), Some("`models` is a dangling link"));
    assert_eq!(resolve_one(dir.path(), "").kind, ModelKind::Missing);
}

#[test]
fn a_list_has_the_synthetic_models_first_and_keeps_links_to_nothing() {
    let dir = workspace();
    std::os::unix::fs::symlink("nowhere", dir.path().join("models/gone")).unwrap();
    let models = read_all_models(dir.path()).unwrap();
    let names: Vec<&str> = models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(
        names,
        ["smollm2-135m", "tiny", "gone", "llama-8b", "notes", "models/smollm2-135m", "two"]
    );
    let gone = models.iter().find(|model| model.name == "gone").unwrap();
    assert_eq!(gone.note.as_deref(), Some("`models/gone` is a dangling link"));
}

/// A launch that one part alone would pass is held to the size of all.
#[test]
fn the_parts_of_a_split_model_are_weighed_together() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("models/big");
    std::fs::create_dir_all(&folder).unwrap();
    for (number, bytes) in [(1, 3), (2, 40)] {
        std::fs::write(folder.join(format!("m-0000{number}-of-00002.gguf")), vec![0; bytes])
            .unwrap();
    }
    let first = "models/big/m-00001-of-00002.gguf";
    for word in ["big", first] {
        let model = resolve_one(dir.path(), word);
        assert_eq!(
            (model.path.as_str(), model.kind, model.weight_bytes),
            (first, ModelKind::Gguf, Some(43))
        );
    }
    std::fs::remove_file(folder.join("m-00001-of-00002.gguf")).unwrap();
    let model = resolve_one(dir.path(), "models/big/m-00002-of-00002.gguf");
    assert_eq!(model.weight_bytes, Some(40));
}
