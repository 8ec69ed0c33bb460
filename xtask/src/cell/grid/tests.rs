use proptest::prelude::*;

use super::*;
use crate::model::reference::ModelKind;

pub(crate) fn model(name: &str) -> ResolvedModel {
    ResolvedModel {
        name: name.to_owned(),
        path: format!("models/{name}"),
        tracked_path: format!("models/{name}"),
        kind: ModelKind::Gguf,
        weight_bytes: None,
        note: None,
    }
}

fn grid(names: &[&str], lengths: &[u64]) -> Grid {
    plan_grid(names.iter().map(|name| model(name)).collect(), lengths.to_vec()).unwrap()
}

#[test]
fn variants_and_streams_cross() {
    let variant = Variant { name: "q8".to_owned(), ..Variant::default() };
    let grid = plan_grid(vec![model("a")], vec![8]).unwrap();
    let grid = grid.with_variants(&[variant], true).with_concurrency(&[1, 4]);
    let cells: Vec<_> = grid
        .cells()
        .map(|cell| (cell.name(), grid.change_of(cell), grid.concurrency_of(cell)))
        .collect();
    let expected =
        [("a", None, 1), ("a+c4", None, 4), ("a+q8", Some("q8"), 1), ("a+q8+c4", Some("q8"), 4)];
    assert_eq!(cells, expected.map(|(name, change, count)| (name.to_owned(), change, count)));
    assert_eq!(grid.row_names(), expected.map(|(name, ..)| name));
    assert_eq!(grid.cell_count(), 4);
}

#[test]
fn pairs_have_rows_of_their_own_with_their_lengths_alone() {
    let lengths = [
        Length::Pair([512, 256]),
        Length::Prompt(512),
        Length::Pair([2048, 8]),
        Length::Pair([2048, 32]),
    ];
    let grid = plan_grid(vec![model("a")], Vec::new()).unwrap().with_pairs(&lengths, 32);
    let variant = Variant { name: "q8".to_owned(), ..Variant::default() };
    let cells = |grid: &Grid| -> Vec<String> {
        let render = |cell: Cell<'_>| format!("{} {}", cell.name(), cell.len);
        grid.cells().map(render).collect()
    };
    assert_eq!(cells(&grid), ["a+g8 2048", "a 512", "a 2048", "a+g256 512"]);
    assert_eq!((grid.lengths(), grid.cell_count()), (&[512, 2048][..], 4));
    assert_eq!(grid.row_names(), ["a+g8", "a", "a+g256"]);
    let generated: Vec<_> = grid.cells().map(|cell| grid.generate_of(cell)).collect();
    assert_eq!(generated, [Some(8), None, None, Some(256)]);
    let crossed = grid.with_variants(&[variant], false).with_concurrency(&[1, 4]);
    assert_eq!(cells(&crossed)[..4], ["a+q8+g8 2048", "a+q8+g8+c4 2048", "a+q8 512", "a+q8 2048"]);
    assert_eq!(crossed.cell_count(), 8, "the model as it is is not wanted");
}

#[test]
fn interleaved_cells_come_shorter_before_longer() {
    let grid = plan_grid(vec![model("a"), model("b")], vec![2048, 512]).unwrap();
    let order = |grid: &Grid| -> Vec<String> {
        grid.cells().map(|cell| format!("{} {}", cell.name(), cell.len)).collect()
    };
    assert_eq!(order(&grid), ["a 2048", "a 512", "b 2048", "b 512"]);
    let grid = grid.in_order(Order::Interleaved);
    assert_eq!(order(&grid), ["a 512", "b 512", "a 2048", "b 2048"]);
}

#[test]
fn all_lengths_of_a_model_come_before_the_next_model() {
    let grid = grid(&["b", "a"], &[512, 128]);
    let cells: Vec<_> = grid.cells().map(|cell| (cell.model.name.as_str(), cell.len)).collect();
    assert_eq!(cells, [("b", 512), ("b", 128), ("a", 512), ("a", 128)]);
    assert_eq!(grid.cell_count(), 4);
}

#[test]
fn streams_are_an_axis_between_models_and_lengths() {
    let grid = grid(&["a", "b"], &[8, 16]).with_concurrency(&[1, 4]);
    let cells: Vec<_> =
        grid.cells().map(|cell| (cell.name(), cell.len, grid.concurrency_of(cell))).collect();
    let a = [("a", 8, 1), ("a", 16, 1), ("a+c4", 8, 4), ("a+c4", 16, 4)];
    let a = a.map(|(name, len, streams)| (name.to_owned(), len, streams));
    assert_eq!((&cells[..4], grid.cell_count()), (&a[..], 8));
    assert_eq!(grid.row_names(), ["a", "a+c4", "b", "b+c4"]);
}

#[test]
fn a_model_that_is_there_twice_is_named() {
    let models = ["a", "b", "a"].map(model).to_vec();
    let error = plan_grid(models, vec![1]).unwrap_err().to_string();
    assert_eq!(error, "these models are listed more than once: `a` (`models/a`, `models/a`)");
}

#[test]
fn fakes_are_split_at_the_last_colon_and_at_commas_between_cells() {
    let grid = grid(&["a:1", "b,c", "d"], &[512, 8]);
    let fakes = parse_fake_ooms("a:1:512,b,c:8, d:8", &grid.cells().collect::<Vec<_>>()).unwrap();
    let cells: Vec<_> = fakes.iter().map(|fake| (fake.model.as_str(), fake.len)).collect();
    assert_eq!(cells, [("a:1", 512), ("b,c", 8), ("d", 8)]);
    assert!(parse_fake_ooms("", &grid.cells().collect::<Vec<_>>()).unwrap().is_empty());
}

#[test]
fn a_fake_that_names_no_cell_is_an_error() {
    let grid = grid(&["llama", "llama-8b"], &[512]);
    for text in ["llama:513", "lama:512", "llama", "llama:512,x", "llama:512:8", ":512"] {
        let error = parse_fake_ooms(text, &grid.cells().collect::<Vec<_>>()).unwrap_err();
        assert!(format!("{error:#}").contains("does not name a cell of this run"), "{text}");
    }
}

#[test]
fn any_class_can_be_faked() {
    let grid = grid(&["a:b"], &[512]);
    for class in Classification::ALL {
        let fake = parse_fake_cell(&format!("a:b:512:{class}"), &grid.cells().collect::<Vec<_>>())
            .unwrap();
        assert_eq!(fake, FakeCell { model: "a:b".to_owned(), len: 512, class });
    }
    assert!(parse_fake_cell("a:b:512:oom", &grid.cells().collect::<Vec<_>>()).is_err());
    assert!(parse_fake_cell("a:512:SKIP:oom", &grid.cells().collect::<Vec<_>>()).is_err());
}

proptest! {
    #[test]
    fn every_cell_can_be_faked_by_its_name(
        names in prop::collection::hash_set("[a-z:,\" ]{1,6}[a-z]", 1..5),
        lengths in prop::collection::hash_set(1u64..99_999, 1..4),
        pick in any::<prop::sample::Index>(),
    ) {
        let names: Vec<String> = names.into_iter().map(|name| name.trim().to_owned()).collect();
        prop_assume!(find_repeated(&names).is_empty());
        let models: Vec<ResolvedModel> = names.iter().map(|name| model(name)).collect();
        let grid = plan_grid(models, lengths.into_iter().collect()).unwrap();
        let cells: Vec<_> = grid.cells().collect();
        prop_assert_eq!(cells.len(), grid.cell_count());
        let cell = pick.get(&cells);
        let fakes = parse_fake_ooms(&format!("{}:{}", cell.model.name, cell.len), &grid.cells().collect::<Vec<_>>()).unwrap();
        prop_assert_eq!(fakes.len(), 1);
        prop_assert_eq!((&fakes[0].model, fakes[0].len), (&cell.model.name, cell.len));
    }
}
