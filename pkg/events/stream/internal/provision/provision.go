package provision

import (
	"context"
	"time"

	"github.com/millrace/millrace/pkg/events/kinds"
	"github.com/millrace/millrace/pkg/events/stream/internal/conn"
	"github.com/millrace/millrace/pkg/events/stream/internal/listing"
	"github.com/millrace/millrace/pkg/events/stream/settings"
)

// Maker creates streams and consumers, and removes them.
type Maker interface {
	conn.ConsumerMaker
	// Kind, Controller, Shadow and Notary create the streams of a kind, of a controller, of a shadow and of the
	// notary, if they are missing.
	Kind(ctx context.Context, kind kinds.Kind) error
	Controller(ctx context.Context, controller string) error
	Shadow(ctx context.Context, controller string) error
	Notary(ctx context.Context, keep time.Duration) error
	// Forget deletes the streams of a kind.
	Forget(ctx context.Context, kind kinds.Name) error
}

// Options say what streams are like and who creates them.
type Options struct {
	// Policy is how the streams are kept.
	Policy settings.Policy
	// User is the user of the connection. Asks tells that the provisioner creates this process's streams and
	// consumers.
	User string
	Asks bool
}

// Provision creates streams and consumers, or has the provisioner create them.
type Provision struct {
	Options
	on      *conn.Conn
	listing *listing.Listing
}

// New creates through a connection. It drops the listing when it has changed which streams there are.
func New(on *conn.Conn, list *listing.Listing, o Options) *Provision {
	return &Provision{Options: o, on: on, listing: list}
}

// Maker is how this process has streams and consumers created.
func (p *Provision) Maker() Maker {
	if p.Asks {
		return &viaProvisioner{p}
	}
	return direct{p}
}
