//! Which processes belong to which link, from one snapshot of the process table.
//!
//! A tree is all processes below the keeper, also detached ones (the keeper is a subreaper), and those on the member list
//! of the link that are still the same processes. Our own processes are not part of it. The caller passes the table in; [`table`] reads it.

use std::collections::{HashMap, HashSet};
use std::io;

use mainstay_os::census::{self, Stat};
use mainstay_protocol::ids::Identity;

use super::card::Card;

/// The process table, indexed by parent.
pub struct ProcessTrees<'t> {
    by_pid: HashMap<i32, &'t Stat>,
    children: HashMap<i32, Vec<i32>>,
}

/// A process of a tree, with its depth below the top.
#[derive(Clone, Copy, Debug)]
pub struct TreeNode<'t> {
    /// What the table says.
    pub stat: &'t Stat,
    /// 0 for the server itself and for processes that detached from it.
    pub depth: usize,
}

/// The part of the process table that the trees of these links are in.
pub fn table<'c>(cards: impl Iterator<Item = &'c Card>) -> io::Result<Vec<Stat>> {
    let mut roots = Vec::new();
    for card in cards {
        let own = [&card.shim, &card.guard, &card.keeper, &card.server];
        roots.extend(own.into_iter().flatten().map(|seen| seen.who.pid));
        roots.extend(card.members.iter().map(|who| who.pid));
    }
    census::below(&roots)
}

impl<'t> ProcessTrees<'t> {
    /// Arranges a table.
    pub fn new(table: &'t [Stat]) -> Self {
        let mut children: HashMap<i32, Vec<i32>> = HashMap::new();
        for stat in table {
            children.entry(stat.ppid).or_default().push(stat.pid);
        }
        Self {
            by_pid: table.iter().map(|stat| (stat.pid, stat)).collect(),
            children,
        }
    }

    /// A process, if it is still the same one and not a zombie.
    pub fn find(&self, who: Identity) -> Option<&'t Stat> {
        let stat = *self.by_pid.get(&who.pid)?;
        (stat.start == who.start && !stat.dead()).then_some(stat)
    }

    /// The tree of a link, parents before children, the server first.
    pub fn tree(&self, card: &Card) -> Vec<TreeNode<'t>> {
        let own: Vec<Identity> = [&card.shim, &card.guard, &card.keeper]
            .into_iter()
            .flatten()
            .map(|seen| seen.who)
            .collect();
        let mut taken: HashSet<i32> = own.iter().map(|who| who.pid).collect();
        let mut found = Vec::new();
        let mut owners = Vec::new();
        if let Some(server) = card.server.as_ref().and_then(|seen| self.find(seen.who)) {
            owners = self.between(server, &taken);
            taken.extend(&owners);
            self.walk(server, 0, &mut taken, &mut found);
        }
        let above = [&card.keeper, &card.guard].into_iter().flatten();
        let above = above.filter_map(|owner| self.find(owner.who));
        owners.extend(above.map(|stat| stat.pid));
        for owner in owners {
            for &child in self.children_of(owner) {
                if let Some(stat) = self.by_pid.get(&child) {
                    self.walk(stat, 0, &mut taken, &mut found);
                }
            }
        }
        for member in &card.members {
            if let Some(stat) = self.find(*member) {
                self.walk(stat, 0, &mut taken, &mut found);
            }
        }
        found
    }

    /// The processes between the server and the first process of `above`: its witness, or the init of a namespace. Empty if no
    /// process of `above` is an ancestor.
    fn between(&self, server: &Stat, above: &HashSet<i32>) -> Vec<i32> {
        let mut found = Vec::new();
        let mut next = server.ppid;
        while !above.contains(&next) {
            let stat = self.by_pid.get(&next);
            // A cycle is possible: a pid may be used again while the table is read.
            let Some(stat) = stat.filter(|_| !found.contains(&next)) else {
                return Vec::new();
            };
            found.push(next);
            next = stat.ppid;
        }
        found
    }

    fn children_of(&self, pid: i32) -> &[i32] {
        self.children.get(&pid).map_or(&[], Vec::as_slice)
    }

    /// Depth first without recursion: a chain of forks can be as long as the table.
    fn walk(
        &self,
        top: &'t Stat,
        depth: usize,
        taken: &mut HashSet<i32>,
        found: &mut Vec<TreeNode<'t>>,
    ) {
        let mut stack = vec![(top, depth)];
        while let Some((stat, depth)) = stack.pop() {
            if !taken.insert(stat.pid) {
                continue;
            }
            if !stat.dead() {
                found.push(TreeNode { stat, depth });
            }
            let mut below: Vec<i32> = self.children_of(stat.pid).to_vec();
            below.sort_unstable_by(|a, b| b.cmp(a));
            for child in below {
                if let Some(stat) = self.by_pid.get(&child) {
                    stack.push((stat, depth + 1));
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::card::samples;
    use mainstay_protocol::event::Seen;

    fn stat(pid: i32, parent: i32) -> Stat {
        Stat {
            pid,
            comm: format!("p{pid}"),
            state: b'S',
            ppid: parent,
            pgrp: pid,
            session: pid,
            flags: 0,
            cpu_ticks: 0,
            waited_ticks: 0,
            waited_faults: 0,
            start: 100 + pid as u64,
            rss_pages: 1,
        }
    }

    fn who(pid: i32) -> Identity {
        Identity {
            pid,
            start: 100 + pid as u64,
        }
    }

    fn card() -> Card {
        let seen = |pid| {
            Some(Seen {
                who: who(pid),
                comm: String::new(),
            })
        };
        Card {
            guard: seen(2),
            keeper: seen(3),
            server: seen(10),
            ..samples::card(1, "demo")
        }
    }

    fn shape(table: &[Stat], card: &Card) -> Vec<(i32, usize)> {
        ProcessTrees::new(table)
            .tree(card)
            .iter()
            .map(|node| (node.stat.pid, node.depth))
            .collect()
    }

    #[test]
    fn a_tree_is_the_server_its_children_and_detached_processes() {
        let table = [
            stat(2, 1),
            stat(3, 2),
            stat(9, 3),
            stat(10, 3),
            stat(12, 10),
            stat(11, 10),
            stat(13, 11),
            stat(50, 1),
        ];
        assert_eq!(
            shape(&table, &card()),
            [(10, 0), (11, 1), (13, 2), (12, 1), (9, 0)]
        );
    }

    #[test]
    fn processes_between_keeper_and_server_are_not_part_of_the_tree() {
        let ours = [stat(2, 1), stat(3, 2), stat(8, 3), stat(9, 8)];
        let tree = [stat(10, 9), stat(11, 10), stat(12, 9), stat(13, 3)];
        let table = [&ours[..], &tree].concat();
        assert_eq!(shape(&table, &card()), [(10, 0), (11, 1), (12, 0), (13, 0)]);
        // A server that another process has adopted has no process of ours as ancestor.
        let table = [stat(2, 1), stat(3, 2), stat(10, 5), stat(5, 1), stat(1, 0)];
        assert_eq!(shape(&table, &card()), [(10, 0)]);
    }

    #[test]
    fn without_keeper_and_guard_the_member_list_counts() {
        let mut zombie = stat(12, 1);
        zombie.state = b'Z';
        let table = [stat(10, 1), stat(11, 1), zombie, stat(13, 1)];
        let mut card = card();
        let reused = Identity {
            start: 1,
            ..who(13)
        };
        card.members = vec![who(11), who(12), reused, who(99)];
        assert_eq!(shape(&table, &card), [(10, 0), (11, 0)]);
    }

    #[test]
    fn a_zombie_is_no_process_but_its_children_are() {
        let mut zombie = stat(10, 3);
        zombie.state = b'Z';
        let table = [stat(2, 1), stat(3, 2), zombie, stat(11, 10)];
        assert_eq!(shape(&table, &card()), [(11, 1)]);
    }

    #[test]
    fn a_chain_as_long_as_the_table_is_walked() {
        let mut table: Vec<Stat> = (11..20_011).map(|pid| stat(pid, pid - 1)).collect();
        table.extend([stat(3, 2), stat(10, 3)]);
        assert_eq!(shape(&table, &card()).len(), 20_001);
    }
}
