package engine

import (
	"container/heap"
	"time"
)

// rank is how soon a key is looked at.
type rank int

// The ranks, the last one first.
const (
	whenIdle    rank = iota // no message asks for the key
	afterChange             // a message asks for the key
	afterRecall             // the key was looked at, and lacked only its recall
	ranks
)

// queue holds the keys to be looked at: higher ranks first, and those of one rank in the order
// of their arrival. Recalled keys come first, so that of many new keys the engine decides about
// the first ones before it has looked at the last ones.
type queue struct {
	lines [ranks][]*entry
	depth int
}

func (q *queue) push(e *entry, now time.Time, as rank) bool {
	if e.queued && e.rank >= as {
		return false
	}
	fresh := !e.queued
	if fresh {
		e.queuedAt = now
		q.depth++
	}
	// An entry that moves up stays in its old line as well and is skipped there.
	e.queued, e.rank = true, as
	q.lines[as] = append(q.lines[as], e)
	return fresh
}

func (q *queue) pop() *entry {
	for as := ranks - 1; as >= 0; as-- {
		line := &q.lines[as]
		for len(*line) > 0 {
			e := (*line)[0]
			(*line)[0] = nil
			*line = (*line)[1:]
			if e.queued && e.rank == as {
				e.queued = false
				q.depth--
				return e
			}
		}
	}
	return nil
}

// timer calls fire at a moment. Timers of the same moment fire in the order in which they were
// set.
type timer struct {
	at   time.Time
	n    int
	fire func()
}

type timers struct {
	list []timer
	n    int
}

func (t *timers) set(at time.Time, fire func()) {
	t.n++
	heap.Push(t, timer{at: at, n: t.n, fire: fire})
}

// due removes the earliest timer and returns it, if its time has come.
func (t *timers) due(now time.Time) (timer, bool) {
	if len(t.list) == 0 || t.list[0].at.After(now) {
		return timer{}, false
	}
	return heap.Pop(t).(timer), true
}

// Len, Less, Swap, Push and Pop implement [heap.Interface].
func (t *timers) Len() int { return len(t.list) }

func (t *timers) Less(i, j int) bool {
	a, b := t.list[i], t.list[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.n < b.n
}

func (t *timers) Swap(i, j int) { t.list[i], t.list[j] = t.list[j], t.list[i] }

func (t *timers) Push(x any) { t.list = append(t.list, x.(timer)) }

func (t *timers) Pop() any {
	last := t.list[len(t.list)-1]
	t.list[len(t.list)-1] = timer{}
	t.list = t.list[:len(t.list)-1]
	return last
}
