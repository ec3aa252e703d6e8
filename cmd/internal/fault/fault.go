// Package fault is a schedule of what goes wrong: which process is killed,
// stopped or cut off, when, and for how long. A schedule is a pure function of its
// seed, so that it can be printed, and played again.
package fault

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is what happens.
type Kind string

// The kinds of faults. For says of a kill how long the process stays away, and of
// all others how long it lasts.
const (
	// Kill ends a process as a crash would.
	Kill Kind = "kill"
	// Restart asks a process to end, and starts it again.
	Restart Kind = "restart"
	// Pause stops a process where it is, and lets it go on later.
	Pause Kind = "pause"
	// Cut resets the connections of a process to something, and refuses new ones.
	Cut Kind = "cut"
	// HalfOpen lets connections stay open that never carry anything again.
	HalfOpen Kind = "half-open"
	// Stall holds back everything that is on its way.
	Stall Kind = "stall"
	// Delay lets everything arrive later.
	Delay Kind = "delay"
	// Throttle lets everything through slowly.
	Throttle Kind = "throttle"
	// Busy answers requests with 429 and Retry-After.
	Busy Kind = "429"
	// Broken answers requests with 500.
	Broken Kind = "500"
	// Lose drops the answers to requests that took effect.
	Lose Kind = "lost answer"

	// Those that take data away, which no schedule has: each is played when nothing else is
	// wrong. Backup and Restore end the API server and etcd, and put etcd's data aside, or
	// back. LoseDisk ends a server of the bus and empties its disk; DamageDisk changes bytes
	// of its files, and cuts one short.
	Backup     Kind = "backup"
	Restore    Kind = "restore"
	LoseDisk   Kind = "lost disk"
	DamageDisk Kind = "damaged disk"
)

// Site is what there is to be broken, by name.
type Site struct {
	Services []string // processes of ours that keep nothing
	Buses    []string // processes of the bus
	Servers  []string // kube-apiserver and etcd
	Wires    []string // connections of a service
	Fronts   []string // where requests can be refused, and answers lost
}

// Fault is one thing that goes wrong.
type Fault struct {
	Number  int           `json:"number"` // from 1
	At      time.Duration `json:"at"`     // since the first moment of the schedule
	Kind    Kind          `json:"kind"`
	Targets []string      `json:"targets"`
	For     time.Duration `json:"for"`
}

func (f Fault) String() string {
	return fmt.Sprintf("%4d  %8s  %-11s %-40s for %v",
		f.Number, f.At.Round(100*time.Millisecond), f.Kind, strings.Join(f.Targets, " + "), f.For.Round(time.Millisecond))
}

// card is a kind of fault with the share that it has of a schedule.
type card struct {
	share   int
	kind    Kind
	targets func(Site) []string
	several int           // up to so many targets at once
	least   time.Duration // lasts from here
	most    time.Duration // to here, mostly short
}

func services(s Site) []string { return s.Services }
func buses(s Site) []string    { return s.Buses }
func servers(s Site) []string  { return s.Servers }
func wires(s Site) []string    { return s.Wires }
func fronts(s Site) []string   { return s.Fronts }

// deck is the mixture: in each hundred faults there are so many of each kind. The
// API server and etcd take long to come back, so they go seldom.
var deck = []card{
	{28, Kill, services, 1, 50 * time.Millisecond, 3 * time.Second},
	{7, Kill, services, 4, 50 * time.Millisecond, 3 * time.Second},
	{7, Kill, buses, 1, 50 * time.Millisecond, 3 * time.Second},
	{1, Kill, buses, 3, 50 * time.Millisecond, 3 * time.Second},
	{2, Kill, servers, 1, 50 * time.Millisecond, 3 * time.Second},
	{5, Restart, services, 1, 0, 0},
	{14, Pause, services, 2, time.Second, time.Minute},
	{4, Pause, buses, 1, time.Second, 20 * time.Second},
	{1, Pause, servers, 1, time.Second, 10 * time.Second},
	{11, Cut, wires, 2, 200 * time.Millisecond, 20 * time.Second},
	{5, HalfOpen, wires, 1, time.Second, 20 * time.Second},
	{3, Stall, wires, 1, 200 * time.Millisecond, 20 * time.Second},
	{3, Delay, wires, 2, time.Second, 20 * time.Second},
	{2, Throttle, wires, 1, time.Second, 10 * time.Second},
	{2, Busy, fronts, 1, time.Second, 10 * time.Second},
	{2, Broken, fronts, 1, time.Second, 10 * time.Second},
	{3, Lose, fronts, 2, time.Second, 10 * time.Second},
}

// Plan draws n faults and spreads them over a time. What the site has nothing of
// is left out.
func Plan(seed uint64, n int, over time.Duration, site Site) []Fault {
	r := rand.New(rand.NewPCG(seed, 0x6d696c6c72616365))
	var all []Fault
	var hand []card
	for len(all) < n {
		if len(hand) == 0 {
			if hand = shuffled(r, site); len(hand) == 0 {
				return nil
			}
		}
		c := hand[0]
		hand = hand[1:]
		slot := over / time.Duration(n)
		at := time.Duration(len(all))*slot + time.Duration(r.Float64()*float64(slot))
		all = append(all, Fault{
			Number: len(all) + 1, At: at, Kind: c.kind, Targets: draw(r, c.targets(site), c.several), For: c.lasts(r),
		})
	}
	return all
}

// Singles are n faults of one target each, of all in turn, to be played one after the
// other with everything whole in between: every process is killed and stopped, and every
// connection of a service cut without a word. What one costs is seen best when it is the
// only one.
func Singles(n int, site Site) []Fault {
	var round []Fault
	for _, name := range slices.Concat(site.Services, site.Buses) {
		round = append(round, Fault{Kind: Kill, Targets: []string{name}, For: 500 * time.Millisecond})
	}
	for _, name := range site.Services {
		round = append(round, Fault{Kind: Pause, Targets: []string{name}, For: 4 * time.Second})
	}
	for _, name := range site.Wires {
		round = append(round, Fault{Kind: HalfOpen, Targets: []string{name}, For: 7 * time.Second})
	}
	var all []Fault
	for i := range n {
		if len(round) == 0 {
			break
		}
		f := round[i%len(round)]
		f.Number = i + 1
		all = append(all, f)
	}
	return all
}

// shuffled is the whole deck once, in some order.
func shuffled(r *rand.Rand, site Site) []card {
	var hand []card
	for _, c := range deck {
		for range c.share {
			if len(c.targets(site)) > 0 {
				hand = append(hand, c)
			}
		}
	}
	r.Shuffle(len(hand), func(i, j int) { hand[i], hand[j] = hand[j], hand[i] })
	return hand
}

// draw takes some of the names, at least one; of cards for several, at least two
// where there are.
func draw(r *rand.Rand, names []string, several int) []string {
	n := 1
	if several > 1 && len(names) > 1 {
		n = min(2+r.IntN(several-1), len(names))
	}
	var some []string
	for _, i := range r.Perm(len(names))[:n] {
		some = append(some, names[i])
	}
	return some
}

// lasts draws a duration: half of them in the shortest sixth or so of the range, on
// a logarithmic scale.
func (c card) lasts(r *rand.Rand) time.Duration {
	if c.least == 0 {
		return 0
	}
	exponent := math.Pow(r.Float64(), 2.5)
	return time.Duration(float64(c.least) * math.Pow(float64(c.most)/float64(c.least), exponent)).Round(time.Millisecond)
}
