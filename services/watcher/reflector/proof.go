package reflector

import (
	"context"
	"errors"
	"fmt"

	"github.com/millrace/millrace/pkg/events"
	"github.com/millrace/millrace/services/watcher/kindlog"
	"github.com/millrace/millrace/services/watcher/source"
	"github.com/millrace/millrace/services/watcher/translate"
)

// errRewound: the API server's present does not follow from what was watched, as after the restore
// of a backup.
var errRewound = errors.New("the API server's history is not the one that was watched")

var noDelta events.Delta

// findLatest sets latest to the newest object in the log, unless it is known.
func (k *Reflector) findLatest(ctx context.Context, newest events.Delta, last uint64) error {
	for depth := uint64(0); k.latest.UID == ""; depth++ {
		if newest.Op == events.Is && newest.Epoch == k.cursor.Epoch {
			k.latest = proofOf(newest)
			return nil
		}
		if depth == kindlog.Depth || depth+1 >= last {
			return nil
		}
		var err error
		var there bool
		newest, there, err = kindlog.At(ctx, k.bus, k.kind.Name, last-depth-1)
		if errors.Is(err, events.ErrDamaged) {
			return nil // it proves nothing
		}
		if err != nil || !there {
			return err
		}
	}
	return nil
}

// proofOf keeps what the proof needs of a delta: how to ask for its object, and its version.
func proofOf(d events.Delta) events.Delta {
	return events.Delta{Op: d.Op, Ref: d.Ref, UID: d.UID, ResourceVersion: d.ResourceVersion, Epoch: d.Epoch}
}

// prove asks whether the API server still has the history that was watched. It returns errRewound
// when the storage is at an older version than our position, or has our newest object in an older
// version. It cannot detect a storage that went back, has since passed our position, and has
// changed that object again; the watch of another kind, for which that is not so, has to.
func (k *Reflector) prove(ctx context.Context) error { return k.proof()(ctx) }

// proof returns prove for the present position, to be run beside the watch.
func (k *Reflector) proof() func(context.Context) error {
	from, cursor, latest := k.source, k.cursor, k.latest
	return func(ctx context.Context) error {
		position, object, err := from.Position(ctx, latest.Ref.Namespace, latest.Ref.Name)
		if source.Answered(err) && latest.Ref.Name != "" {
			position, object, err = from.Position(ctx, "", "") // not every server can select by name
		}
		if err != nil {
			return err
		}
		if translate.Older(position, cursor.Version) {
			return fmt.Errorf("%w: it stands at %s, before %s", errRewound, position, cursor.Version)
		}
		if object == nil || latest.Epoch != cursor.Epoch || object.GetUID() != latest.UID {
			return nil
		}
		if translate.Older(object.GetResourceVersion(), latest.ResourceVersion) {
			return fmt.Errorf("%w: %v is at %s, and was at %s", errRewound, latest.Ref, object.GetResourceVersion(), latest.ResourceVersion)
		}
		return nil
	}
}

// errOldEpoch: the watch of another kind has found out that the storage went back.
var errOldEpoch = fmt.Errorf("%w, as another kind has shown", errRewound)

// inOldEpoch reports whether the storage is in a later epoch than this watch.
func (k *Reflector) inOldEpoch() bool {
	epoch, _ := k.epoch.Now()
	return epoch > k.cursor.Epoch
}
