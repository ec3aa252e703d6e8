package reflector

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/services/watcher/translate"
)

// ensure creates the kind's log where it is missing. Where it exists in another form or
// version, settle decides which of the two to use.
func (k *Reflector) ensure(ctx context.Context) error {
	if k.ensured && k.source != nil {
		return nil
	}
	var err error
	if !k.ensured {
		err = k.bus.EnsureKind(ctx, k.kind)
	}
	if errors.Is(err, bus.ErrSettings) {
		err = k.settleSettings(ctx, err)
	}
	if err != nil {
		return err
	}
	if k.source, err = k.open(k.kind); err != nil {
		return err
	}
	k.ensured = true
	return nil
}

// settleSettings handles streams whose settings differ from the wanted ones.
func (k *Reflector) settleSettings(ctx context.Context, refused error) error {
	have, there, err := storedKind(ctx, k.bus, k.kind.Name)
	if err != nil {
		return err
	}
	if !there || have == k.kind {
		return advise(k.kind.Name, refused)
	}
	use, remake := translate.Settle(have, k.kind, k.served)
	if remake {
		// Readers notice, and read the new streams from their start.
		klog.FromContext(ctx).Info("Recreating the streams of a kind, because its form on the bus has changed",
			"kind", k.kind.Name, "have", have, "haveForm", have.Form, "want", use, "wantForm", use.Form)
		if err := k.bus.DeleteKind(ctx, k.kind.Name); err != nil {
			return err
		}
		k.cursor, k.latest = translate.Cursor{}, noDelta
	}
	k.kind = use
	if err := k.bus.EnsureKind(ctx, use); err != nil {
		return advise(k.kind.Name, err)
	}
	return nil
}

func storedKind(ctx context.Context, b bus.Bus, name kinds.Name) (kind kinds.Kind, there bool, err error) {
	all, err := b.Kinds(ctx)
	if err != nil {
		return kind, false, fmt.Errorf("look how %s is stored: %w", name, err)
	}
	for _, k := range all {
		if k.Name == name {
			return k, true, nil
		}
	}
	return kind, false, nil
}

// advise tells the operator what to do about settings that settle cannot reconcile. The watcher
// does not recreate the streams, because the operator may want to keep their record.
func advise(kind kinds.Name, err error) error {
	if !errors.Is(err, bus.ErrSettings) {
		return err
	}
	return fmt.Errorf("%w. Start with the settings that the streams of %s have, or edit the streams, or remove them and lose their record", err, kind)
}
