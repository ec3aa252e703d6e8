package events

import (
	"cmp"

	"github.com/millrace/millrace/pkg/events/kinds"
)

// Key names the subject of a turn: for most controllers an object of the kind they own. Only
// controllers whose keys span kinds, such as the garbage collector, set Kind.
type Key struct {
	Kind      kinds.Name `json:"kind,omitempty"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
}

// Ref names an object, whatever its version or identity.
type Ref struct {
	Kind      kinds.Name `json:"kind"`
	Namespace string     `json:"namespace,omitempty"`
	Name      string     `json:"name"`
}

// String writes a key for logs: "default/web", or "pods:default/web" when the key has a kind.
func (k Key) String() string {
	text := k.Name
	if k.Namespace != "" {
		text = k.Namespace + "/" + k.Name
	}
	if k.Kind != "" {
		text = string(k.Kind) + ":" + text
	}
	return text
}

// String writes a reference as "pods:default/web".
func (r Ref) String() string { return Key(r).String() }

// Compare orders by kind, namespace and name.
func (r Ref) Compare(other Ref) int {
	return cmp.Or(cmp.Compare(r.Kind, other.Kind), cmp.Compare(r.Namespace, other.Namespace), cmp.Compare(r.Name, other.Name))
}

// Slot is the slot of the key's messages; see [SlotOf].
func (k Key) Slot() int { return SlotOf(k.Namespace, k.Name) }

// Slot is the slot of the object's messages; see [SlotOf].
func (r Ref) Slot() int { return SlotOf(r.Namespace, r.Name) }

// Slots is the number of slots. It never changes: an object that moved to another slot would be
// in two slots of its log: readers could not tell which of its messages is the last.
const Slots = 16

// SlotOf spreads objects over [Slots] slots by namespace, so that an owner and its dependents
// share one; cluster-scoped objects are spread by name. It is the 32-bit FNV-1a hash modulo
// Slots.
func SlotOf(namespace, name string) int {
	text := namespace
	if text == "" {
		text = name
	}
	const offset, prime = 2166136261, 16777619
	hash := uint32(offset)
	for i := range len(text) {
		hash = (hash ^ uint32(text[i])) * prime
	}
	return int(hash % Slots)
}

// Epochs maps kinds to their epochs; a kind in its first epoch, 0, is left out. An epoch ends
// when the API server's storage is restored to an earlier state: decisions and writes of the
// ended epoch may have been undone.
//
// A restore affects the whole storage at once, so all kinds begin an epoch of the same number,
// each as soon as a watcher has published it anew.
type Epochs map[kinds.Name]uint64

// MaxEpoch is the highest possible epoch. Each restore of a backup begins only one, so a message
// with a higher epoch is damaged or forged.
const MaxEpoch = 1<<32 - 1

// NextEpoch is the epoch after the given one, at most [MaxEpoch].
func NextEpoch(epoch uint64) uint64 { return min(epoch, MaxEpoch-1) + 1 }

// Over gives a kind, the first by name, whose epoch in e has ended according to now.
func (e Epochs) Over(now Epochs) (kind kinds.Name, over bool) {
	for k, epoch := range now {
		if epoch > e[k] && (!over || k < kind) {
			kind, over = k, true
		}
	}
	return kind, over
}

// Newest is the highest of the epochs.
func (e Epochs) Newest() (newest uint64) {
	for _, epoch := range e {
		newest = max(newest, epoch)
	}
	return newest
}
