//! The idle lists of one stream: one last-in-first-out list for each size class, with what is needed
//! to tell surplus from working set.
//!
//! A list's bottom entries that were not taken over a window are exactly its surplus: the lowest
//! depth that the list had within the window counts them. Links are in the block records, so that a
//! list of any depth costs nothing to keep, and lead up as well as down, so that what leaves at the bottom
//! costs the same at any depth.

use crate::alloc::class::{HUGE_SLOT, SLOTS};
use crate::alloc::table::{NONE, Table};

/// Windows after which entries that were never taken have aged out.
const WINDOWS_TO_AGE_OUT: u32 = 8;

#[derive(Debug, Clone, Copy)]
pub(crate) struct ClassList {
    /// The most recent block.
    head: u32,
    /// The least recent one; anything where there is none.
    bottom: u32,
    depth: u32,
    /// Lowest depth in this window.
    low: u32,
    /// Lowest depth in the window before.
    low_before: u32,
    /// Lowest depth since entries last aged out.
    low_since_ageing: u32,
    /// Blocks that a drain took; misses up to this number are what re-warming costs.
    pub(crate) drained: u32,
    /// The lists' clock when the class was last asked for a block.
    last_touch: u64,
}

impl ClassList {
    const EMPTY: ClassList = ClassList {
        head: NONE,
        bottom: NONE,
        depth: 0,
        low: 0,
        low_before: 0,
        low_since_ageing: 0,
        drained: 0,
        last_touch: 0,
    };

    #[inline]
    fn push(&mut self, table: &mut Table, index: u32) {
        table.get_mut(index).next = self.head;
        match self.head {
            NONE => self.bottom = index,
            head => table.get_mut(head).above = index,
        }
        self.head = index;
        self.depth += 1;
    }

    #[inline]
    pub(crate) fn pop(&mut self, table: &Table, now: u64) -> Option<u32> {
        let index = self.head;
        if index == NONE {
            return None;
        }
        self.head = table.get(index).next;
        self.depth -= 1;
        self.lower_marks(self.depth);
        self.last_touch = now;
        Some(index)
    }

    /// Takes the most recent block of exactly these bytes: huge sizes share a list.
    pub(crate) fn pop_sized(&mut self, table: &mut Table, bytes: u64, now: u64) -> Option<u32> {
        let mut above = NONE;
        let mut index = self.head;
        let mut below = self.depth;
        while index != NONE {
            below -= 1;
            let next = table.get(index).next;
            if table.get(index).physical_bytes == bytes {
                self.join(table, above, next);
                self.depth -= 1;
                // What is below the taken block was not touched; what is above was looked past.
                self.lower_marks(below);
                self.last_touch = now;
                return Some(index);
            }
            above = index;
            index = next;
        }
        None
    }

    /// Cuts the bottom `count` blocks off and returns them as a chain.
    pub(crate) fn cut_bottom(&mut self, table: &mut Table, count: u32) -> u32 {
        let count = count.min(self.depth);
        if count == 0 {
            return NONE;
        }
        self.depth -= count;
        let chain = if self.depth == 0 {
            std::mem::replace(&mut self.head, NONE)
        } else {
            let mut first_cut = self.bottom;
            for _ in 1..count {
                first_cut = table.get(first_cut).above;
            }
            self.bottom = table.get(first_cut).above;
            table.get_mut(self.bottom).next = NONE;
            first_cut
        };
        self.low = self.low.saturating_sub(count);
        self.low_before = self.low_before.saturating_sub(count);
        self.low_since_ageing = self.low_since_ageing.saturating_sub(count);
        chain
    }

    /// Unlinks one block, wherever it is in the list.
    pub(crate) fn unlink(&mut self, table: &mut Table, wanted: u32) -> bool {
        let mut above = NONE;
        let mut index = self.head;
        while index != NONE {
            let next = table.get(index).next;
            if index == wanted {
                self.join(table, above, next);
                self.depth -= 1;
                self.lower_marks(self.depth);
                return true;
            }
            above = index;
            index = next;
        }
        false
    }

    /// Makes neighbours of two blocks between which one was taken out; [`NONE`] is beyond an end.
    fn join(&mut self, table: &mut Table, above: u32, below: u32) {
        match above {
            NONE => self.head = below,
            above => table.get_mut(above).next = below,
        }
        match below {
            NONE => self.bottom = above,
            below => table.get_mut(below).above = above,
        }
    }

    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    /// Notes that the class was asked for a block that it did not have.
    pub(crate) fn note_miss(&mut self, now: u64) {
        self.last_touch = now;
    }

    pub(crate) fn last_touch(&self) -> u64 {
        self.last_touch
    }

    /// The most recent block, from which `next` leads on.
    pub(crate) fn head(&self) -> u32 {
        self.head
    }

    /// The least recent block; anything where there is none.
    pub(crate) fn bottom(&self) -> u32 {
        self.bottom
    }

    /// Bottom entries that were not taken in the window before nor in this one.
    pub(crate) fn surplus(&self) -> u32 {
        self.low.min(self.low_before)
    }

    #[inline]
    fn lower_marks(&mut self, depth: u32) {
        if depth < self.low {
            self.low = depth;
            self.low_since_ageing = self.low_since_ageing.min(depth);
        }
    }
}

const FILLED_WORDS: usize = SLOTS.div_ceil(64);

/// The numbers of the bits that are set in one word.
struct Bits {
    word: usize,
    bits: u64,
}

impl Iterator for Bits {
    type Item = usize;

    fn next(&mut self) -> Option<usize> {
        let bit = (self.bits != 0).then(|| self.bits.trailing_zeros() as usize)?;
        self.bits &= self.bits - 1;
        Some(64 * self.word + bit)
    }
}

#[derive(Debug)]
pub(crate) struct StreamLists {
    classes: Box<[ClassList; SLOTS]>,
    /// A bit for each class that had a block in this window: eviction looks at no other.
    filled: [u64; FILLED_WORDS],
    windows_to_ageing: u32,
}

impl StreamLists {
    pub(crate) fn new() -> Self {
        StreamLists {
            classes: Box::new([ClassList::EMPTY; SLOTS]),
            filled: [0; FILLED_WORDS],
            windows_to_ageing: WINDOWS_TO_AGE_OUT,
        }
    }

    #[inline]
    pub(crate) fn class_mut(&mut self, slot: u16) -> &mut ClassList {
        &mut self.classes[usize::from(slot)]
    }

    #[inline]
    pub(crate) fn push(&mut self, table: &mut Table, slot: u16, index: u32) {
        self.filled[usize::from(slot) / 64] |= 1 << (slot % 64);
        self.class_mut(slot).push(table, index);
    }

    /// The classes that have blocks, with their slots.
    pub(crate) fn filled(&self) -> impl Iterator<Item = (usize, &ClassList)> {
        let classes = &self.classes;
        let slots = self.filled.iter().enumerate().flat_map(|(word, &bits)| Bits { word, bits });
        slots.map(|slot| (slot, &classes[slot])).filter(|(_, class)| class.depth > 0)
    }

    pub(crate) fn classes(&self) -> &[ClassList; SLOTS] {
        &self.classes
    }

    pub(crate) fn classes_mut(&mut self) -> &mut [ClassList; SLOTS] {
        &mut self.classes
    }

    /// Takes a block of the class: the most recent one of exactly its bytes.
    #[inline]
    pub(crate) fn take(
        &mut self,
        table: &mut Table,
        slot: u16,
        bytes: u64,
        now: u64,
    ) -> Option<u32> {
        if slot == HUGE_SLOT {
            return self.class_mut(slot).pop_sized(table, bytes, now);
        }
        self.class_mut(slot).pop(table, now)
    }

    /// Closes a window. Returns whether it was the one after which surplus ages out; then
    /// [`take_aged`](Self::take_aged) is to be called for every class.
    pub(crate) fn close_window(&mut self) -> bool {
        self.filled = [0; FILLED_WORDS];
        for (slot, class) in self.classes.iter_mut().enumerate() {
            class.low_before = class.low;
            class.low = class.depth;
            self.filled[slot / 64] |= u64::from(class.depth > 0) << (slot % 64);
        }
        self.windows_to_ageing -= 1;
        if self.windows_to_ageing > 0 {
            return false;
        }
        self.windows_to_ageing = WINDOWS_TO_AGE_OUT;
        true
    }

    /// Cuts off what no window since the last ageing has touched, as a chain.
    pub(crate) fn take_aged(&mut self, table: &mut Table, slot: usize) -> u32 {
        let class = &mut self.classes[slot];
        let chain = class.cut_bottom(table, class.low_since_ageing);
        class.low_since_ageing = class.depth;
        chain
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::alloc::driver::{Address, Origin};
    use crate::alloc::table::{Block, BlockState};

    /// A list of so many blocks, whose records are 0 to `depth` from the bottom up.
    fn filled(depth: u32) -> (Table, ClassList) {
        let (mut table, mut list) = (Table::new(), ClassList::EMPTY);
        for number in 0..depth {
            let address = Address(4096 * (u64::from(number) + 1));
            let mut block = Block::new(address, BlockState::Idle, Origin::Cache, 0);
            block.physical_bytes = 512;
            let index = table.insert(block).unwrap();
            list.push(&mut table, index);
        }
        (table, list)
    }

    fn chain(table: &Table, mut index: u32) -> Vec<u32> {
        let mut found = Vec::new();
        while index != NONE {
            found.push(index);
            index = table.get(index).next;
        }
        found
    }

    #[test]
    fn what_is_cut_off_the_bottom_touches_the_victims_and_one_more() {
        let (mut table, mut list) = filled(229_000);
        for count in [1, 2, 100] {
            let before = table.touches();
            let cut = list.cut_bottom(&mut table, count);
            let touched = table.touches() - before;
            assert!(touched <= u64::from(count) + 1, "{count} blocks: {touched} records");
            assert_eq!(chain(&table, cut).len(), count as usize);
        }
        assert_eq!(list.depth(), 229_000 - 103);
        assert_eq!(chain(&table, list.head()).last(), Some(&103), "the bottom three went first");
    }

    #[test]
    fn the_bottom_is_known_whatever_was_taken_out() {
        let (mut table, mut list) = filled(6);
        assert!(list.unlink(&mut table, 0), "the bottom");
        assert!(list.unlink(&mut table, 5), "the top");
        assert!(list.unlink(&mut table, 3), "from within");
        assert!(!list.unlink(&mut table, 3));
        assert_eq!(chain(&table, list.head()), [4, 2, 1]);
        table.get_mut(1).physical_bytes = 1024;
        assert_eq!(list.pop_sized(&mut table, 1024, 1), Some(1), "the bottom again");
        let cut = list.cut_bottom(&mut table, 1);
        assert_eq!((chain(&table, cut), chain(&table, list.head())), (vec![2], vec![4]));
        let cut = list.cut_bottom(&mut table, 7);
        assert_eq!((chain(&table, cut), list.depth(), list.head()), (vec![4], 0, NONE));
        list.push(&mut table, 2);
        list.push(&mut table, 4);
        assert_eq!(list.pop(&table, 2), Some(4));
        let cut = list.cut_bottom(&mut table, 1);
        assert_eq!((chain(&table, cut), list.depth()), (vec![2], 0));
    }
}
