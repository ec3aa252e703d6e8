// Package fault makes schedules of faults: which process is killed, stopped or cut
// off, when, and for how long. A schedule is a pure function of its seed, so that it can
// be printed, and played again.
package fault

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Kind is the kind of a fault.
type Kind string

// The kinds of faults. The field For is how long a fault lasts; of a kill, how long the
// process stays away.
const (
	// Kill kills a process, like a crash.
	Kill Kind = "kill"
	// Restart stops a process gracefully, and starts it again.
	Restart Kind = "restart"
	// Pause suspends a process, and resumes it later.
	Pause Kind = "pause"
	// Cut resets a connection of a process, and refuses new ones.
	Cut Kind = "cut"
	// HalfOpen leaves connections open that never carry a byte again.
	HalfOpen Kind = "half-open"
	// Stall holds back all bytes in transit.
	Stall Kind = "stall"
	// Delay adds latency.
	Delay Kind = "delay"
	// Throttle limits the rate.
	Throttle Kind = "throttle"
	// Busy answers requests with 429 and Retry-After.
	Busy Kind = "429"
	// Broken answers requests with 500.
	Broken Kind = "500"
	// Lose drops the responses to requests that took effect.
	Lose Kind = "lost answer"

	// The faults that remove data. No schedule has them: each is played while there is no other
	// fault. Backup and Restore stop the API server and etcd, and copy etcd's data aside, or
	// back. LoseDisk stops a bus server and empties its disk; DamageDisk changes bytes of its
	// files, and truncates one.
	Backup     Kind = "backup"
	Restore    Kind = "restore"
	LoseDisk   Kind = "lost disk"
	DamageDisk Kind = "damaged disk"
)

// Site are the possible targets of faults, by name.
type Site struct {
	Services []string // Millrace's stateless processes
	Buses    []string // processes of the bus
	Servers  []string // kube-apiserver and etcd
	Wires    []string // connections of a service
	Fronts   []string // proxies that can refuse requests and drop responses
}

// Fault is one scheduled fault.
type Fault struct {
	Number  int           `json:"number"` // from 1
	At      time.Duration `json:"at"`     // since the start of the schedule
	Kind    Kind          `json:"kind"`
	Targets []string      `json:"targets"`
	For     time.Duration `json:"for"`
}

func (f Fault) String() string {
	return fmt.Sprintf("%4d  %8s  %-11s %-40s for %v",
		f.Number, f.At.Round(100*time.Millisecond), f.Kind, strings.Join(f.Targets, " + "), f.For.Round(time.Millisecond))
}

// card is a kind of fault with its share of a schedule.
type card struct {
	share   int
	kind    Kind
	targets func(Site) []string
	several int           // maximum of targets at once
	least   time.Duration // the shortest duration
	most    time.Duration // the longest; most are short
}

func services(s Site) []string { return s.Services }
func buses(s Site) []string    { return s.Buses }
func servers(s Site) []string  { return s.Servers }
func wires(s Site) []string    { return s.Wires }
func fronts(s Site) []string   { return s.Fronts }

// deck is the number of faults of each kind in every hundred. The API server and etcd are
// killed rarely, because they take long to come back.
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

// Plan draws n faults and spreads them over a time. It leaves out kinds for which the site
// has no target.
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

// Singles are n faults with one target each, in turn, to be played one after the other with a
// recovery in between: each process of the services and the bus is killed, each service is
// suspended, and each of their connections becomes half-open. The cost of a fault is measured
// best in isolation.
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

// shuffled is the whole deck once, in random order.
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

// draw selects random names, at least one; for cards with several targets at least two, if
// there are.
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

// lasts draws a duration with a logarithmic distribution: about half of them are in the
// shortest sixth of the range.
func (c card) lasts(r *rand.Rand) time.Duration {
	if c.least == 0 {
		return 0
	}
	exponent := math.Pow(r.Float64(), 2.5)
	return time.Duration(float64(c.least) * math.Pow(float64(c.most)/float64(c.least), exponent)).Round(time.Millisecond)
}
