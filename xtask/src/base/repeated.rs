//! Finds what is named more than once.

/// What is in a list more than once, each named once, in the order of the list.
pub(crate) fn find_repeated<T: PartialEq + Clone>(items: &[T]) -> Vec<T> {
    let mut repeated = Vec::new();
    for (index, item) in items.iter().enumerate() {
        if items[..index].contains(item) && !repeated.contains(item) {
            repeated.push(item.clone());
        }
    }
    repeated
}
