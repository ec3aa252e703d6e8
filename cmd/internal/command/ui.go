package command

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/millrace/millrace/cmd/internal/page"
	"github.com/millrace/millrace/cmd/internal/program"
	"github.com/millrace/millrace/cmd/internal/reader/connect"
	"github.com/millrace/millrace/cmd/internal/reader/session"
)

// uiOptions are the flags of the web page.
type uiOptions struct {
	listen string
	// open serves the page without a token.
	open  bool
	hosts []string
}

// newUI is the command that serves the web page.
func newUI() *cobra.Command {
	o := uiOptions{listen: "127.0.0.1:8090"}
	cmd := session.Program{
		Use:   "ui",
		Short: "Serve the record as a web page",
		Long: `Serves a web page that shows the record: objects as they are and as they were at any
moment, what happened and why, and the differences between two versions. It needs only
the bus and changes nothing. It shows everything that is on the bus, so by default it
listens on loopback, and answers only requests with the token in the address that it
prints.`,
		Example: "  millrace ui\n  millrace ui --listen=127.0.0.1:0 -n shop",
		Args:    cobra.NoArgs, Lasting: true, Outputs: []string{"page"},
		Complete: func(*session.Session, []string, string) []string { return nil },
		Flags:    o.add,
		Run:      o.run,
	}.Command()
	for _, name := range []string{"output", "color"} { // a page has its own
		cmd.Flags().Lookup(name).Hidden = true
	}
	return cmd
}

func (o *uiOptions) add(f *pflag.FlagSet) {
	f.StringVar(&o.listen, "listen", o.listen, "`address` of the page; port 0 uses any free port")
	f.BoolVar(&o.open, "no-token", o.open, "serve the page without a token to every client")
	f.StringSliceVar(&o.hosts, "host", o.hosts, "host `names` that requests may have, besides localhost and IP addresses")
}

func (o *uiOptions) run(ctx context.Context, s *session.Session, _ []string) error {
	listener, err := net.Listen("tcp", o.listen)
	if err != nil {
		return fmt.Errorf("serve the page: %w; name another address with --listen", err)
	}
	options := page.Options{Program: "millrace", Version: program.Version, Hosts: o.hosts, Namespace: s.Given()}
	if filepath.Base(os.Args[0]) == plugin {
		options.Program = "kubectl millrace"
	}
	switch {
	case s.Record != "":
		options.Flags, options.Recording = []string{"--record=" + s.Record}, true
	case s.URL != connect.LocalBus:
		options.Flags = []string{"--nats-url=" + s.Redacted()}
	}
	query := ""
	if !o.open {
		options.Token = page.Token()
		query = "?token=" + options.Token
	}
	server := &http.Server{
		Handler:           page.New(s.Bus, options),
		ReadHeaderTimeout: 10 * time.Second,
		WriteTimeout:      2 * time.Minute, // live views set their own
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		BaseContext:       func(net.Listener) context.Context { return ctx }, // live views end with us
	}
	address := listener.Addr().String()
	at, err := netip.ParseAddrPort(address)
	beyond := err == nil && !at.Addr().IsLoopback()
	if err == nil && at.Addr().IsUnspecified() { // a browser cannot open this address
		address = fmt.Sprintf("localhost:%d", at.Port())
	}
	s.Note("The page is at http://%s/%s", address, query)
	if beyond && o.open {
		s.Note("It asks for no token: every user who reaches %s reads everything that is on record.", listener.Addr())
	}
	return serve(ctx, server, listener)
}

// serve serves until the context ends.
func serve(ctx context.Context, server *http.Server, listener net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() }) // the page only reads: nothing is lost
	defer stop()
	if err := server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("serve the page at %s: %w", (&url.URL{Scheme: "http", Host: listener.Addr().String()}), err)
	}
	return nil
}
