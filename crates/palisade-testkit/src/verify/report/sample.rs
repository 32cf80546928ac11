//! Which of many things are drawn, when not all can be.

/// Chooses at most `limit` things, in order, by their ranks: of rank 0 all that fit, of each other
/// rank all that fit into three quarters of the space that is left, so that the ranks after it are
/// not left out altogether. What is chosen of a rank that does not fit is evenly spread. A thing
/// without a rank is never chosen.
pub(super) fn choose(ranks: &[Option<u8>], limit: usize) -> Vec<usize> {
    let mut by_rank: Vec<Vec<usize>> = Vec::new();
    for (place, rank) in ranks.iter().enumerate() {
        let Some(rank) = rank.map(usize::from) else { continue };
        if by_rank.len() <= rank {
            by_rank.resize_with(rank + 1, Vec::new);
        }
        by_rank[rank].push(place);
    }
    let mut chosen = Vec::new();
    let mut later: usize = by_rank.iter().map(Vec::len).sum();
    for (rank, places) in by_rank.iter().enumerate() {
        later -= places.len();
        let left = limit - chosen.len();
        let reserved = if rank == 0 { 0 } else { later.min(left / 4) };
        chosen.extend(evenly(places, left - reserved));
    }
    chosen.sort_unstable();
    chosen
}

/// At most `limit` of `all`, evenly spread.
pub(super) fn evenly<T: Copy>(all: &[T], limit: usize) -> impl Iterator<Item = T> {
    let take = all.len().min(limit);
    (0..take).map(move |nth| all[nth * all.len() / take])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_chosen_that_fit() {
        assert_eq!(choose(&[Some(3), None, Some(0)], 5), [0, 2]);
    }

    #[test]
    fn what_matters_comes_first_and_the_rest_is_spread() {
        let mut ranks = vec![Some(1); 100];
        ranks[50] = Some(0);
        ranks[51] = Some(0);
        let chosen = choose(&ranks, 12);
        assert_eq!(chosen.len(), 12);
        assert!(chosen.contains(&50) && chosen.contains(&51), "{chosen:?}");
        assert!(chosen[0] == 0 && chosen[11] > 85, "{chosen:?}");
    }

    #[test]
    fn no_rank_leaves_out_the_later_ones_altogether() {
        let mut ranks = vec![Some(1); 100];
        ranks.extend([Some(2); 100]);
        let chosen = choose(&ranks, 40);
        assert_eq!(chosen.iter().filter(|place| **place < 100).count(), 30);
        assert_eq!(chosen.len(), 40);
        let few: Vec<Option<u8>> = [[Some(1); 100].as_slice(), &[Some(2); 2]].concat();
        assert_eq!(choose(&few, 40).len(), 40, "and nothing is reserved for nobody");
    }

    #[test]
    fn what_matters_is_bounded_too() {
        assert_eq!(choose(&[Some(0); 100], 10).len(), 10);
        assert!(choose(&[Some(0); 100], 0).is_empty());
    }
}
