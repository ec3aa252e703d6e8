package events

import "github.com/millrace/millrace/pkg/events/kinds"

// DamageTopic is where readers ask the watchers, again and again until it is
// mended, to look at a kind anew.
const DamageTopic = "damage"

// Damage is what a reader found wrong with the streams of a kind.
type Damage struct {
	Kind kinds.Name `json:"kind"`
	By   string     `json:"by,omitempty"`
	Hole Hole       `json:"hole"`
	// End is the last sequence of the kind's state stream when that was found: a
	// watcher that has mended the streams at a later one need not look again.
	End uint64 `json:"end"`
	// Suspected: the streams agree with themselves, and not with what the API server
	// answered to a command.
	Suspected bool `json:"suspected,omitempty"`
}
