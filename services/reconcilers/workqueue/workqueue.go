// Package workqueue holds what an engine has to do: which keys it has to look at, and how soon
// ([Queue]), and what it has to do at which moments ([Timers]). Both are for a single goroutine, and
// have no clock of their own: the caller says what time it is.
package workqueue

import (
	"container/heap"
	"time"
)

// Rank is how soon a key is looked at.
type Rank int

// The ranks, the last one first.
const (
	WhenIdle    Rank = iota // no message asks for the key
	AfterChange             // a message asks for the key
	AfterRecall             // the key was looked at, and lacked only its recall
	ranks
)

// Place is the place of a key in a queue. The type that stands for a key embeds it.
type Place struct {
	Queued   bool
	Rank     Rank
	QueuedAt time.Time
}

func (p *Place) place() *Place { return p }

// Item is a pointer to a type that embeds [Place].
type Item interface {
	comparable
	place() *Place
}

// Queue holds the keys to be looked at: higher ranks first, and those of one rank in the order
// of their arrival. Recalled keys come first, so that of many new keys the engine decides about
// the first ones before it has looked at the last ones. The zero value is empty.
type Queue[T Item] struct {
	lines [ranks][]T
	depth int
}

// Len is the number of keys in the queue.
func (q *Queue[T]) Len() int { return q.depth }

// Push queues a key, or moves it up if it is queued with a lower rank. It reports whether the key
// was not queued before.
func (q *Queue[T]) Push(e T, now time.Time, as Rank) bool {
	p := e.place()
	if p.Queued && p.Rank >= as {
		return false
	}
	fresh := !p.Queued
	if fresh {
		p.QueuedAt = now
		q.depth++
	}
	// An entry that moves up stays in its old line as well and is skipped there.
	p.Queued, p.Rank = true, as
	q.lines[as] = append(q.lines[as], e)
	return fresh
}

// Pop removes the first key and returns it; the zero T when the queue is empty.
func (q *Queue[T]) Pop() T {
	var none T
	for as := ranks - 1; as >= 0; as-- {
		line := &q.lines[as]
		for len(*line) > 0 {
			e := (*line)[0]
			(*line)[0] = none
			*line = (*line)[1:]
			if p := e.place(); p.Queued && p.Rank == as {
				p.Queued = false
				q.depth--
				return e
			}
		}
	}
	return none
}

// Timers are functions to be called at moments. Those of the same moment are called in the order in
// which they were set. The zero value is empty.
type Timers struct {
	list timerHeap
	n    int
}

// Len is the number of timers that are set.
func (t *Timers) Len() int { return len(t.list) }

// Set sets a timer.
func (t *Timers) Set(at time.Time, fire func()) {
	t.n++
	heap.Push(&t.list, timer{at: at, n: t.n, fire: fire})
}

// Next is the moment of the earliest timer; ok is false when none is set.
func (t *Timers) Next() (at time.Time, ok bool) {
	if len(t.list) == 0 {
		return time.Time{}, false
	}
	return t.list[0].at, true
}

// Due removes the earliest timer and returns its function, if its time has come.
func (t *Timers) Due(now time.Time) (fire func(), ok bool) {
	if len(t.list) == 0 || t.list[0].at.After(now) {
		return nil, false
	}
	return heap.Pop(&t.list).(timer).fire, true
}

type timer struct {
	at   time.Time
	n    int
	fire func()
}

// timerHeap implements [heap.Interface].
type timerHeap []timer

func (t timerHeap) Len() int { return len(t) }

func (t timerHeap) Less(i, j int) bool {
	a, b := t[i], t[j]
	return a.at.Before(b.at) || a.at.Equal(b.at) && a.n < b.n
}

func (t timerHeap) Swap(i, j int) { t[i], t[j] = t[j], t[i] }

func (t *timerHeap) Push(x any) { *t = append(*t, x.(timer)) }

func (t *timerHeap) Pop() any {
	end := len(*t) - 1
	last := (*t)[end]
	(*t)[end] = timer{}
	*t = (*t)[:end]
	return last
}
