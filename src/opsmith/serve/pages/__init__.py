"""The pages for people; every one is made on the server, and scripts only draw plots and follow what is live."""
