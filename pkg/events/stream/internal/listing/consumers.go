package listing

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/millrace/millrace/pkg/events/bus"
	"github.com/millrace/millrace/pkg/events/stream/natserr"
)

// Consumers are the durable consumers of a stream; see [bus.Archive].
func (l *Listing) Consumers(ctx context.Context, stream string) ([]bus.Consumer, error) {
	handle, err := l.on.Handle(ctx, stream)
	if err != nil {
		return nil, err
	}
	request, done := l.on.Guarded(ctx, stream)
	defer done()
	var found []bus.Consumer
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if info.Config.Durable == "" {
			continue
		}
		c := bus.Consumer{
			Name: info.Name, Answered: info.AckFloor.Stream,
			Unanswered: info.NumAckPending, Pending: int(info.NumPending), Again: info.NumRedelivered,
			Ended: hasEndedReader(info),
		}
		if info.Delivered.Last != nil {
			c.Active = *info.Delivered.Last
		}
		found = append(found, c)
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return nil, fmt.Errorf("list the consumers of %s: %w", stream, err)
	}
	slices.SortFunc(found, func(a, b bus.Consumer) int { return strings.Compare(a.Name, b.Name) })
	return found, nil
}

// hasEndedReader reports whether a consumer belongs to a reader that acknowledges and has ended: it has no
// pending pull request.
func hasEndedReader(info *jetstream.ConsumerInfo) bool {
	return info.Config.AckPolicy == jetstream.AckAllPolicy && info.NumWaiting == 0
}

// Acknowledged is how far ended readers had dealt with a stream; see [bus.Queue].
func (l *Listing) Acknowledged(ctx context.Context, stream string) (dealt uint64, ok bool, err error) {
	request, done := l.on.Guarded(ctx, "CONSUMER.LIST."+stream)
	defer done()
	handle, err := l.on.Handle(request, stream)
	if err != nil {
		return 0, false, natserr.Translate(request, err)
	}
	list := handle.ListConsumers(request)
	for info := range list.Info() {
		if !hasEndedReader(info) {
			continue
		}
		if floor := max(info.AckFloor.Stream, info.Config.OptStartSeq-1); !ok || floor < dealt {
			dealt, ok = floor, true
		}
	}
	if err := natserr.Translate(request, list.Err()); err != nil {
		return 0, false, fmt.Errorf("list the readers of %s: %w", stream, err)
	}
	return dealt, ok, nil
}
