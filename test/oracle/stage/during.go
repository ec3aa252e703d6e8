package stage

import (
	"context"
	"testing/synctest"

	"k8s.io/client-go/informers"

	"github.com/millrace/millrace/test/oracle/kcm"
)

// RunUpstream runs upstream's controller on the stage while do runs.
func (s *Stage) RunUpstream(build kcm.Build, do func()) error {
	client, err := s.Client()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	f := informers.NewSharedInformerFactory(client, 0)
	run, err := build(ctx, f, client)
	if err != nil {
		return err
	}
	f.Start(ctx.Done())
	synctest.Wait()
	done := make(chan struct{})
	go func() { defer close(done); run() }()
	do()
	cancel()
	<-done
	f.Shutdown()
	return nil
}
