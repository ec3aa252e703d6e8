package command

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/klog/v2"

	"github.com/millrace/millrace/pkg/events/stream"
)

// newBus is the command of a bus alone: the embedded NATS server as a process
// of its own, for separate services without a NATS of one's own.
func newBus() *cobra.Command {
	server, service := newServerOptions(), newServiceOptions()
	server.listen = "127.0.0.1:4222"
	return program{
		use: "bus", aliases: []string{"nats"}, short: "Run the embedded NATS JetStream server alone",
		long: `Runs the NATS JetStream server that "millrace run" embeds as a process of its own,
for separate services on one machine. In production use a NATS cluster of three.`,
		flags: []func(*pflag.FlagSet){server.add, service.add},
		run: func(ctx context.Context) error {
			running, err := server.start()
			if err != nil {
				return err
			}
			defer running.Close()
			klog.FromContext(ctx).Info("NATS is listening", "address", server.listen, "data", server.dataDir)
			return service.run(ctx, nil)
		},
	}.cobra()
}

// start runs the embedded server.
func (o *serverOptions) start() (*stream.Server, error) {
	if o.dataDir == "" {
		return nil, errors.New("--data-dir is empty; name the directory of the streams")
	}
	return stream.Serve(stream.ServerOptions{
		Dir: o.dataDir, Listen: o.listen, SyncAlways: o.sync == 0, SyncInterval: o.sync, Log: slog.New(logr.ToSlogHandler(klog.Background().WithName("nats").V(2))),
	})
}

// open connects to the bus: to server when there is one in this process,
// otherwise to --nats-url.
func (o *busOptions) open(ctx context.Context, name string, server *stream.Server) (*stream.Bus, error) {
	options := stream.Options{
		URL: o.url, Server: server, Name: "millrace-" + name, Credentials: o.credentials,
		Replicas: o.replicas, LogAge: o.maxAge, LogBytes: o.maxBytes, Log: logger("bus"),
	}
	if server == nil && o.url == "" {
		return nil, errors.New("no bus: set --nats-url to the address of a NATS server, such as nats://127.0.0.1:4222")
	}
	if o.caFile != "" {
		pem, err := os.ReadFile(o.caFile)
		if err != nil {
			return nil, fmt.Errorf("read --nats-ca-file: %w", err)
		}
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("read --nats-ca-file: %s holds no certificate", o.caFile)
		}
		options.TLS = &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}
	}
	waiting := time.AfterFunc(remark, func() {
		klog.FromContext(ctx).Info("Waiting for NATS, which does not answer", "url", redacted(o.url))
	})
	defer waiting.Stop()
	b, err := stream.Connect(ctx, options)
	if err != nil && ctx.Err() != nil {
		return nil, ctx.Err() // told to end while waiting, which is no failure
	}
	return b, err
}

// remark is how long NATS may take to answer before that is worth a line.
const remark = time.Second

// redacted hides the passwords in a list of addresses.
func redacted(list string) string {
	addresses := strings.Split(list, ",")
	for i, address := range addresses {
		u, err := url.Parse(strings.TrimSpace(address))
		if err != nil {
			addresses[i] = "(malformed)"
			continue
		}
		addresses[i] = u.Redacted()
	}
	return strings.Join(addresses, ",")
}

// logger writes to klog under a name.
func logger(name string) *slog.Logger {
	return slog.New(logr.ToSlogHandler(klog.Background().WithName(name)))
}
