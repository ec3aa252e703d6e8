package report

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
)

// Finding is the result of comparing a shadow with kube-controller-manager (KCM): for one write
// that the shadow's controller wanted, or for one that KCM made. No writer carries out a
// shadow's turns, so they have no outcomes; the writes of KCM take their place.
type Finding struct {
	Controller string     `json:"controller"`
	Key        events.Key `json:"key"`
	Agreement  Agreement  `json:"agreement"`
	// What describes the write for people: "create a pod of default/web".
	What string `json:"what"`
	// Note explains the agreement, where it is not obvious.
	Note string `json:"note,omitempty"`

	// Ref and UID identify the object that was written, or should have been.
	Ref events.Ref `json:"ref,omitzero"`
	UID types.UID  `json:"uid,omitempty"`
	// Turn is the sequence, in the controller's shadow stream, of the turn that wanted the
	// write; 0 when no turn did. Because is the turn's reason.
	Turn    uint64 `json:"turn,omitempty"`
	Because string `json:"because,omitempty"`
	// Version is the object's version after KCM's write, and Delta the message of the log that
	// has it; empty and nil when KCM wrote nothing.
	Version string          `json:"version,omitempty"`
	Delta   *events.Trigger `json:"delta,omitempty"`
	// Differences are the fields in which the two writes differ.
	Differences []Difference `json:"differences,omitempty"`
	// At is when the finding was made, by the clock of the record.
	At time.Time `json:"at"`
}

// Difference is a field for which a shadow wanted another value than KCM.
type Difference struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	Ours   any    `json:"ours,omitempty"`
	Theirs any    `json:"theirs,omitempty"`
}

// Agreement is the relation between a write of KCM and one that a shadow wanted.
type Agreement string

const (
	// Agreed: KCM made the wanted write at that moment.
	Agreed Agreement = "agreed"
	// Late: KCM made a write that was wanted on an earlier view, or that is wanted a moment
	// later: only the time differs.
	Late Agreement = "late"
	// Coalesced: the same change in other steps. Several writes became one, one became several,
	// or the wanted state had moved on before KCM wrote.
	Coalesced Agreement = "coalesced"
	// Vanished: the shadow wanted the write for a while, and stopped wanting it before KCM made
	// it, because its cause had gone.
	Vanished Agreement = "vanished"
	// Unseen: KCM's write rests on an answer of the API server that only KCM got, or happened
	// where the record has a gap.
	Unseen Agreement = "unseen"
	// WeOnly: the shadow wanted the write all the time, and KCM did not make it.
	WeOnly Agreement = "we-only"
	// KCMOnly: KCM made a write that the shadow never wanted.
	KCMOnly Agreement = "kcm-only"
	// Differs: KCM wrote another value than the shadow wanted.
	Differs Agreement = "differs"
)

// Agreements are all values, from agreement to difference.
var Agreements = []Agreement{Agreed, Late, Coalesced, Vanished, Unseen, WeOnly, KCMOnly, Differs}

// Explained reports whether neither side made a write that the other would not have made.
func (a Agreement) Explained() bool { return a != WeOnly && a != KCMOnly && a != Differs }
