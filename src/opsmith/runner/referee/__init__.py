"""The trusted child: it computes references and compares."""
