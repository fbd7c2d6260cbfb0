//! Waits at a queue: futures that may be dropped at any point.

use super::store::weight;
use super::{Line, Queue, State, Tuple, Waiter};
use ferroflow_core::{Result, status};
use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll};

/// A place in a line, left when dropped, and the elements taken so far, given back when dropped.
struct Place {
    queue: Arc<Queue>,
    line: Line,
    ticket: u64,
    taken: Vec<Tuple>,
}

impl Place {
    fn new(queue: &Arc<Queue>, line: Line) -> Place {
        let mut state = queue.lock();
        let ticket = state.next_ticket;
        state.next_ticket += 1;
        state.line(line).push_back(Waiter { ticket, waker: None, cancelled: false });
        Place { queue: queue.clone(), line, ticket, taken: Vec::new() }
    }

    /// Runs `attempt` whenever this place is first in its line, until it is ready.
    fn poll<R>(
        &mut self,
        context: &mut Context<'_>,
        mut attempt: impl FnMut(&mut State, &mut Vec<Tuple>) -> Poll<Result<R>>,
    ) -> Poll<Result<R>> {
        let queue = self.queue.clone();
        let mut state = queue.lock();
        if state.gone {
            return Poll::Ready(Err(status!(
                Cancelled,
                "{} '{}' was deleted while a step waited for it.",
                queue.kind(),
                queue.spec.name
            )));
        }
        let ticket = self.ticket;
        let line = state.line(self.line);
        let at = line.iter().position(|waiting| waiting.ticket == ticket);
        let at = at.expect("a place stays in its line until it is dropped");
        if line[at].cancelled {
            return Poll::Ready(Err(status!(Cancelled, "Enqueue operation was cancelled")));
        }
        if at == 0 || self.line == Line::Observers {
            let before = state.store.len();
            let outcome = attempt(&mut state, &mut self.taken);
            if state.store.len() != before || outcome.is_ready() {
                state.wake_first();
            }
            if outcome.is_ready() {
                return outcome;
            }
        }
        let line = state.line(self.line);
        line[at].waker = Some(context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.queue.lock();
        state.store.give_back(std::mem::take(&mut self.taken));
        let ticket = self.ticket;
        state.line(self.line).retain(|waiting| waiting.ticket != ticket);
        state.wake_first();
    }
}

impl Queue {
    /// Adds elements as room appears. Elements added before a wait is dropped stay, as in stock.
    pub(crate) async fn enqueue(self: &Arc<Self>, tuples: Vec<Tuple>) -> Result<()> {
        let mut place = Place::new(self, Line::Producers);
        let mut rest = tuples.into_iter().peekable();
        poll_fn(|context| {
            place.poll(context, |state, _| {
                if state.closed {
                    return Poll::Ready(Err(self.closed()));
                }
                while let Some(next) = rest.peek() {
                    let bytes = state.store.bytes().saturating_add(weight(next));
                    if state.store.len() >= self.spec.capacity || bytes > self.spec.memory_limit {
                        break;
                    }
                    state.store.push(rest.next().expect("an element was seen"));
                }
                if rest.peek().is_none() { Poll::Ready(Ok(())) } else { Poll::Pending }
            })
        })
        .await
    }

    /// Takes `count` elements, or with `up_to` at least one if the queue ends before.
    pub(crate) async fn dequeue(self: &Arc<Self>, count: usize, up_to: bool) -> Result<Vec<Tuple>> {
        let mut place = Place::new(self, Line::Consumers);
        poll_fn(|context| {
            place.poll(context, |state, taken| {
                let available = state.store.available(state.closed);
                // With a small batch to come, what is there is all there will be.
                let wanted = if up_to && state.closed { 1 } else { count };
                if state.store.leaves_in_parts() || available >= wanted {
                    let taking = available.min(count - taken.len());
                    taken.extend(std::iter::from_fn(|| state.store.pop()).take(taking));
                }
                if taken.len() == count || (up_to && state.closed && !taken.is_empty()) {
                    return Poll::Ready(Ok(std::mem::take(taken)));
                }
                if !state.closed {
                    return Poll::Pending;
                }
                state.store.give_back(std::mem::take(taken));
                Poll::Ready(Err(self.insufficient(count, state.store.len())))
            })
        })
        .await
    }

    /// Waits until more than `index` elements are there and looks at that one.
    pub(crate) async fn peek(self: &Arc<Self>, index: usize) -> Result<Tuple> {
        let mut place = Place::new(self, Line::Observers);
        poll_fn(|context| {
            place.poll(context, |state, _| match state.store.peek(index) {
                Some(tuple) => Poll::Ready(Ok(tuple.clone())),
                None => Poll::Pending,
            })
        })
        .await
    }

    /// Drops every element.
    pub(crate) fn clear(&self) {
        let mut state = self.lock();
        while state.store.pop().is_some() {}
        state.wake_first();
    }

    /// Closes the queue after everybody who brings elements already, or instead of them.
    pub(crate) async fn close(self: &Arc<Self>, cancel_pending: bool) -> Result<()> {
        let mut place = Place::new(self, Line::Producers);
        if cancel_pending {
            let mut state = self.lock();
            for waiting in state.producers.iter_mut().filter(|waiting| waiting.ticket < place.ticket) {
                waiting.cancelled = true;
            }
            state.wake_all();
        }
        poll_fn(|context| {
            place.poll(context, |state, _| {
                // Whoever gives up those that wait does not mind that the queue is closed already.
                if state.closed && !cancel_pending {
                    let name = &self.spec.name;
                    return Poll::Ready(Err(status!(Cancelled, "Queue '{name}' is already closed.")));
                }
                state.closed = true;
                state.wake_all();
                Poll::Ready(Ok(()))
            })
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Order, QueueSpec};
    use super::*;
    use ferroflow_core::{Code, DType, PartialShape, Tensor};
    use futures_util::FutureExt;

    fn queue(capacity: usize, order: Order) -> Arc<Queue> {
        Arc::new(Queue::new(QueueSpec {
            name: "q".to_owned(),
            order,
            types: vec![DType::Int64],
            shapes: vec![PartialShape::scalar()],
            capacity,
            memory_limit: usize::MAX,
            padding: false,
        }))
    }

    fn tuple(value: i64) -> Tuple {
        vec![Tensor::scalar(value)]
    }

    fn values(tuples: Vec<Tuple>) -> Vec<i64> {
        tuples.iter().map(|tuple| tuple[0].to_scalar().unwrap()).collect()
    }

    fn put(queue: &Arc<Queue>, value: i64) {
        queue.enqueue(vec![tuple(value)]).now_or_never().unwrap().unwrap();
    }

    #[test]
    fn a_dropped_wait_loses_nothing() {
        let queue = queue(10, Order::First);
        put(&queue, 1);
        put(&queue, 2);
        let mut many = Box::pin(queue.dequeue(3, false));
        assert!((&mut many).now_or_never().is_none());
        assert_eq!(queue.size(), 0, "a batch gathers its elements while it waits");
        drop(many);
        assert_eq!(queue.size(), 2);
        assert_eq!(values(queue.dequeue(2, false).now_or_never().unwrap().unwrap()), [1, 2]);
    }

    #[test]
    fn the_first_in_line_is_served_first() {
        let queue = queue(10, Order::First);
        let mut first = Box::pin(queue.dequeue(1, false));
        let mut second = Box::pin(queue.dequeue(1, false));
        assert!((&mut first).now_or_never().is_none());
        assert!((&mut second).now_or_never().is_none());
        put(&queue, 1);
        assert!((&mut second).now_or_never().is_none());
        assert_eq!(values((&mut first).now_or_never().unwrap().unwrap()), [1]);
        drop(first);
        put(&queue, 2);
        assert_eq!(values(second.now_or_never().unwrap().unwrap()), [2]);
    }

    #[test]
    fn a_full_queue_makes_room_as_elements_leave() {
        let queue = queue(1, Order::First);
        let mut many = Box::pin(queue.enqueue(vec![tuple(1), tuple(2)]));
        assert!((&mut many).now_or_never().is_none());
        assert_eq!(values(queue.dequeue(1, false).now_or_never().unwrap().unwrap()), [1]);
        assert!((&mut many).now_or_never().unwrap().is_ok());
        drop(many);
        let mut batch = Box::pin(queue.dequeue(3, false));
        assert!((&mut batch).now_or_never().is_none());
        put(&queue, 3);
        assert!((&mut batch).now_or_never().is_none());
        put(&queue, 4);
        assert_eq!(values(batch.now_or_never().unwrap().unwrap()), [2, 3, 4]);
    }

    #[test]
    fn closing_drains_and_then_ends() {
        let queue = queue(10, Order::First);
        put(&queue, 1);
        put(&queue, 2);
        queue.close(false).now_or_never().unwrap().unwrap();
        let short = queue.dequeue(3, false).now_or_never().unwrap().unwrap_err();
        assert_eq!(short.code(), Code::OutOfRange);
        assert_eq!(
            short.message(),
            "FIFOQueue 'q' is closed and has insufficient elements (requested 3, current size 2)"
        );
        assert_eq!(values(queue.dequeue(3, true).now_or_never().unwrap().unwrap()), [1, 2]);
        let enqueue = queue.enqueue(vec![tuple(1)]).now_or_never().unwrap().unwrap_err();
        assert_eq!((enqueue.code(), enqueue.message()), (Code::Cancelled, "FIFOQueue 'q' is closed."));
        assert!(queue.close(false).now_or_never().unwrap().is_err());
    }

    #[test]
    fn closing_can_cancel_those_who_wait_for_room() {
        let queue = queue(1, Order::First);
        put(&queue, 1);
        let mut waiting = Box::pin(queue.enqueue(vec![tuple(2)]));
        assert!((&mut waiting).now_or_never().is_none());
        let mut close = Box::pin(queue.close(true));
        assert!((&mut close).now_or_never().is_none(), "it waits for the cancelled to leave");
        assert_eq!((&mut waiting).now_or_never().unwrap().unwrap_err().code(), Code::Cancelled);
        drop(waiting);
        close.now_or_never().unwrap().unwrap();
        assert_eq!(queue.size(), 1);
    }

    #[test]
    fn a_batch_by_priority_waits_until_it_is_whole() {
        let queue = queue(10, Order::Priority);
        let mut batch = Box::pin(queue.dequeue(3, false));
        for value in [5, 3] {
            put(&queue, value);
            assert!((&mut batch).now_or_never().is_none());
        }
        assert_eq!(queue.size(), 2, "nothing leaves before");
        queue.enqueue(vec![tuple(1), tuple(4)]).now_or_never().unwrap().unwrap();
        assert_eq!(values(batch.now_or_never().unwrap().unwrap()), [1, 3, 4]);
        queue.close(false).now_or_never().unwrap().unwrap();
        assert_eq!(queue.dequeue(2, false).now_or_never().unwrap().unwrap_err().code(), Code::OutOfRange);
        assert_eq!(values(queue.dequeue(2, true).now_or_never().unwrap().unwrap()), [5]);
    }

    #[test]
    fn priorities_and_shuffles() {
        let priority = queue(10, Order::Priority);
        for value in [5, 1, 3] {
            put(&priority, value);
        }
        assert_eq!(values(priority.dequeue(3, false).now_or_never().unwrap().unwrap()), [1, 3, 5]);
        let shuffled = queue(100, Order::Shuffled { keep: 2, seeds: (5, 6) });
        for value in 0..8 {
            put(&shuffled, value);
        }
        let mut taken = values(shuffled.dequeue(6, false).now_or_never().unwrap().unwrap());
        assert!(shuffled.dequeue(1, false).now_or_never().is_none());
        shuffled.close(false).now_or_never().unwrap().unwrap();
        taken.extend(values(shuffled.dequeue(2, false).now_or_never().unwrap().unwrap()));
        taken.sort_unstable();
        assert_eq!(taken, [0, 1, 2, 3, 4, 5, 6, 7]);
    }
}
