// Log in with franz-go and ask for the brokers. Argument: options as JSON. Status 0: it is let in.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"log"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

type options struct {
	Address, Listener, Mechanism, Authority, Certificate, User, Password, Token string
	Seconds                                                                     int // to stay
}

func main() {
	var o options
	if err := json.Unmarshal([]byte(os.Args[1]), &o); err != nil {
		log.Fatal(err)
	}
	settings := []kgo.Opt{kgo.SeedBrokers(o.Address), kgo.RequestRetries(1)}
	if o.Listener != "SASL_PLAINTEXT" {
		settings = append(settings, kgo.DialTLSConfig(security(o)))
	}
	if o.Listener != "SSL" {
		settings = append(settings, kgo.SASL(mechanism(o)))
	}
	client, err := kgo.NewClient(settings...)
	if err != nil {
		log.Fatal(err)
	}
	defer client.Close()
	end := time.Now().Add(time.Duration(o.Seconds) * time.Second)
	for {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		err := client.Ping(ctx)
		cancel()
		if err != nil {
			log.Fatal(err)
		}
		if time.Now().After(end) {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func security(o options) *tls.Config {
	pem, err := os.ReadFile(o.Authority)
	if err != nil {
		log.Fatal(err)
	}
	authorities := x509.NewCertPool()
	authorities.AppendCertsFromPEM(pem)
	config := &tls.Config{RootCAs: authorities, ServerName: "localhost"}
	if o.Listener == "SSL" {
		own, err := tls.LoadX509KeyPair(o.Certificate, o.Certificate)
		if err != nil {
			log.Fatal(err)
		}
		config.Certificates = []tls.Certificate{own}
	}
	return config
}

func mechanism(o options) sasl.Mechanism {
	switch o.Mechanism {
	case "PLAIN":
		return plain.Auth{User: o.User, Pass: o.Password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: o.User, Pass: o.Password}.AsSha512Mechanism()
	default:
		return oauth.Auth{Token: o.Token}.AsMechanism()
	}
}
