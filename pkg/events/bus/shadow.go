package bus

import "context"

// Beside is a bus on which shadows say what they would have done. Their streams
// have subjects of their own: no writer reads them, and who may publish on nothing
// else can have nothing done.
type Beside interface {
	Bus
	// EnsureShadow makes the stream of a controller's shadow, and no other. One that
	// exists with other settings is ErrSettings.
	EnsureShadow(ctx context.Context, controller string) error
}
