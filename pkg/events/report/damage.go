package report

import (
	"encoding/json"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/pkg/events/kinds"
)

// DamageTopic is the topic on which readers ask the watchers to list a kind again. They repeat
// the request until the streams are repaired.
const DamageTopic = "damage"

// Damage describes what a reader found wrong with the streams of a kind.
type Damage struct {
	Kind kinds.Name  `json:"kind"`
	By   string      `json:"by,omitempty"`
	Hole events.Hole `json:"hole"`
	// End is the last sequence of the kind's log when the reader found the damage. A
	// watcher that has repaired the streams at a later sequence need not list again.
	End uint64 `json:"end"`
	// Suspected: the streams are consistent in themselves, but contradict the API server's
	// answer to a command.
	Suspected bool `json:"suspected,omitempty"`
	// About is the object on which they disagree, and UID its uid. Removed is true when the API
	// server says that the object is gone; otherwise Version is the resourceVersion at which it
	// said that the object exists. All are empty without a suspicion, and in messages of earlier
	// versions.
	About   events.Ref `json:"about,omitzero"`
	UID     types.UID  `json:"uid,omitempty"`
	Removed bool       `json:"removed,omitempty"`
	Version string     `json:"version,omitempty"`
}

// Settled reports whether newest, the newest delta of the suspected object, now agrees with the
// API server. A delta behind the version at which the API server said that the object exists agrees
// as well, also if the object is gone by then: the log is in the order of versions. What a relist has
// recorded again proves nothing.
func (d Damage) Settled(newest events.Delta) bool {
	if !d.Suspected || d.UID == "" {
		return false
	}
	if there := newest.Op != events.Gone && newest.UID == d.UID; there != d.Removed {
		return true
	}
	return !d.Removed && d.Version != "" && !newest.Sync && kinds.CompareVersions(newest.ResourceVersion, d.Version) > 0
}

// maxDamage bounds a damage report, in bytes; its reason is cut at maxDetail bytes.
const maxDamage = 8 << 10

// Encode gives the damage report as JSON, with its reason cut at maxDetail bytes.
func (d Damage) Encode() []byte {
	d.Hole.Reason = short(d.Hole.Reason)
	text, _ := json.Marshal(d) // numbers, strings and a time: cannot fail
	return text
}

// DecodeDamage reads a damage report and cuts its reason at maxDetail bytes, because the reason
// goes into the record and any process with the right to publish can send one. ok is false for
// anything else.
func DecodeDamage(text []byte) (d Damage, ok bool) {
	if len(text) > maxDamage || json.Unmarshal(text, &d) != nil {
		return Damage{}, false
	}
	d.Hole.Reason = short(d.Hole.Reason)
	return d, d.Kind != "" && len(d.By) <= maxName
}

// short cuts a text at maxDetail bytes, without splitting a character.
func short(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDetail)], "")
}
