package bus

import "context"

// ShadowBus is a bus on which shadows publish the turns that they would have made. Their streams
// have subjects of their own: no writer reads them, so a process that may publish only there
// cannot change the cluster.
type ShadowBus interface {
	Bus
	// EnsureShadow creates the stream of a controller's shadow, and no other. If it exists with
	// other settings, the error is ErrSettings.
	EnsureShadow(ctx context.Context, controller string) error
}
