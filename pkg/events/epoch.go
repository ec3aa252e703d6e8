package events

import "github.com/millrace/millrace/pkg/events/kinds"

// Epochs are the epochs of kinds; a kind that is still in its first one, which is
// 0, is left out. An epoch ends when the API server is restored to an earlier
// time: what was decided in it, or done in it, may never have been.
//
// That happens to the whole storage at once, so all kinds begin an epoch of the same
// number, each as soon as it is told of anew.
type Epochs map[kinds.Name]uint64

// MaxEpoch is the last epoch that there can be. Each restore of a backup begins one, so
// what tells of a later one is damaged or forged.
const MaxEpoch = 1<<32 - 1

// NextEpoch is the one after an epoch, and [MaxEpoch] after that.
func NextEpoch(epoch uint64) uint64 { return min(epoch, MaxEpoch-1) + 1 }

// Over is a kind, the first by name, whose epoch in e has ended by now.
func (e Epochs) Over(now Epochs) (kind kinds.Name, over bool) {
	for k, epoch := range now {
		if epoch > e[k] && (!over || k < kind) {
			kind, over = k, true
		}
	}
	return kind, over
}

// Newest is the latest of the epochs.
func (e Epochs) Newest() (newest uint64) {
	for _, epoch := range e {
		newest = max(newest, epoch)
	}
	return newest
}
