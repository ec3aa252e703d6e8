package events

import "github.com/millrace/millrace/pkg/events/kinds"

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
