package events

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events/kinds"
)

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
	// About is the object about which they disagree, and UID its uid; Removed tells whether
	// the API server says that it is gone. Empty where nothing is suspected, and in what
	// earlier versions say.
	About   Ref       `json:"about,omitzero"`
	UID     types.UID `json:"uid,omitempty"`
	Removed bool      `json:"removed,omitempty"`
}

// Settled tells whether the newest delta of the object of a suspicion says what the API
// server said.
func (d Damage) Settled(newest Delta) bool {
	there := newest.Op != Gone && newest.UID == d.UID
	return d.Suspected && d.UID != "" && there != d.Removed
}

// maxDamage bounds a report of damage, in bytes; its reason is cut at maxDetail.
const maxDamage = 8 << 10

// Encode gives the damage as it goes on its topic, its reason cut short.
func (d Damage) Encode() []byte {
	d.Hole.Reason = short(d.Hole.Reason)
	text, _ := json.Marshal(d) // numbers, strings and a time: cannot fail
	return text
}

// DecodeDamage reads a report of damage, and cuts its reason short; ok is false for anything
// else. Its reason goes into the record, and every process that may publish can say it.
func DecodeDamage(text []byte) (d Damage, ok bool) {
	if len(text) > maxDamage || json.Unmarshal(text, &d) != nil {
		return Damage{}, false
	}
	d.Hole.Reason = short(d.Hole.Reason)
	return d, d.Kind != "" && len(d.By) <= maxName
}

// short cuts a text at maxDetail bytes, and not within a character.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}
