package stream_test

import (
	"testing"

	"github.com/nats-io/nats-server/v2/server"
)

// TestConfigurationOfNATS: the file for a stock server is one that the server
// reads, and says what the record needs.
func TestConfigurationOfNATS(t *testing.T) {
	o, err := server.ProcessConfigFile("../../../deployments/nats/nats.conf")
	if err != nil {
		t.Fatal(err)
	}
	if !o.JetStream || !o.SyncAlways || o.MaxPayload < 8<<20 || o.MaxPending < 256<<20 || len(o.Routes) != 3 || o.Cluster.Port == 0 || o.HTTPPort == 0 {
		t.Errorf("JetStream %t, sync always %t, payload %d, pending %d, routes %v, cluster port %d, monitoring port %d",
			o.JetStream, o.SyncAlways, o.MaxPayload, o.MaxPending, o.Routes, o.Cluster.Port, o.HTTPPort)
	}
}
