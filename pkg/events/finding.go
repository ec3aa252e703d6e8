package events

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// Finding is what came of comparing a shadow with kube-controller-manager (KCM):
// of one write that a controller wanted beside it, or of one that KCM made. A
// shadow's turns have no outcomes, since no writer carries them out; what KCM does is
// what becomes of them.
type Finding struct {
	Controller string    `json:"controller"`
	Key        Key       `json:"key"`
	Agreement  Agreement `json:"agreement"`
	// What is the write, as people say it: "create a pod of default/web".
	What string `json:"what"`
	// Note says how the agreement was found, where that is not plain.
	Note string `json:"note,omitempty"`

	// Ref and UID are of the object that was written, or was to be.
	Ref Ref       `json:"ref,omitzero"`
	UID types.UID `json:"uid,omitempty"`
	// Turn is where in the controller's shadow stream the turn is that wanted it;
	// 0 where none did. Because is its reason.
	Turn    uint64 `json:"turn,omitempty"`
	Because string `json:"because,omitempty"`
	// Version is that of the object behind KCM's write, and Delta where the log has
	// it; nil and empty where KCM wrote nothing.
	Version string   `json:"version,omitempty"`
	Delta   *Trigger `json:"delta,omitempty"`
	// Differences are the fields in which the two do not agree.
	Differences []Difference `json:"differences,omitempty"`
	// At is when it was judged, by the clock of the record.
	At time.Time `json:"at"`
}

// Difference is a field that a shadow wanted to have another value.
type Difference struct {
	Path   string `json:"path"`
	Before any    `json:"before,omitempty"`
	Ours   any    `json:"ours,omitempty"`
	Theirs any    `json:"theirs,omitempty"`
}

// Agreement is how a write of KCM's and one that a shadow wanted compare.
type Agreement string

const (
	// Agreed: KCM did what was wanted at that moment.
	Agreed Agreement = "agreed"
	// Late: KCM did what had been wanted on an earlier view, or what is wanted a
	// moment later: only the time differs.
	Late Agreement = "late"
	// Coalesced: the same in other steps: several writes became one, one became
	// several, or what was wanted had gone on before KCM came to it.
	Coalesced Agreement = "coalesced"
	// Vanished: it was wanted for a while, and was not any more before anybody had
	// done it: its cause had gone.
	Vanished Agreement = "vanished"
	// Unseen: what KCM did rests on an answer of the API server that only KCM got, or
	// happened where the record has a gap.
	Unseen Agreement = "unseen"
	// WeOnly: it was wanted all the time, and KCM did not do it.
	WeOnly Agreement = "we-only"
	// KCMOnly: KCM did what was never wanted.
	KCMOnly Agreement = "kcm-only"
	// Differs: KCM wrote something else there than was wanted.
	Differs Agreement = "differs"
)

// Agreements are all of them, from agreement to difference.
var Agreements = []Agreement{Agreed, Late, Coalesced, Vanished, Unseen, WeOnly, KCMOnly, Differs}

// Explained tells whether neither side did anything that the other would not have
// done.
func (a Agreement) Explained() bool { return a != WeOnly && a != KCMOnly && a != Differs }
